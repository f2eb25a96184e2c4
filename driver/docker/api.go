package docker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
)

// Config says how to reach the daemon and where registry credentials come from.
type Config struct {
	// Endpoint is the daemon's address (unix:///var/run/docker.sock, tcp://host:2376). Empty means DOCKER_HOST,
	// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, then the default socket.
	Endpoint string
	// Cert, Key and CA are PEM files for TLS. They are used only together with Endpoint.
	Cert, Key, CA string
	// AuthConfigFile is a file in the format of ~/.docker/config.json.
	AuthConfigFile string
	// AuthHelper is the suffix of a credential helper: "ecr-login" runs docker-credential-ecr-login.
	AuthHelper string
	// InfraImage is the image of the pause container of group networks.
	InfraImage string
}

type Client struct{}

func New(cfg Config) (*Client, error) { panic("todo") }
func (c *Client) Close() error        { panic("todo") }

// Info is what the daemon says of itself.
type Info struct {
	Version       string
	OSType        string
	CgroupVersion string   // "1" or "2"
	BridgeIP      string   // gateway of the network "bridge"; empty if there is none
	Runtimes      []string // sorted
}

func (c *Client) Info(ctx context.Context) (Info, error) { panic("todo") }

// Image is what a task needs to know of the image it runs from.
type Image struct {
	ID         string
	Env        []string
	User       string
	StopSignal string
	Labels     map[string]string
}

// Auth are credentials for one registry.
type Auth struct {
	Username, Password string
	ServerAddress      string
	IdentityToken      string
}

// PullRequest asks for an image.
type PullRequest struct {
	Ref          string
	Force        bool                          // pull even if the image is there
	Load         func() (io.ReadCloser, error) // opens an image archive to load in place of a pull; nil: none
	Auth         *Auth                         // the task's own credentials; nil: those of Config
	AuthSoftFail bool                          // credentials that cannot be had are reported to Progress, and the pull is anonymous
	Timeout      time.Duration                 // of the whole; 0: none
	IdleTimeout  time.Duration                 // without any news from the daemon; 0: none
	Progress     func(msg string)              // called every two minutes while pulling; may be nil
}

func (c *Client) EnsureImage(ctx context.Context, req PullRequest) (Image, error) { panic("todo") }

// RemoveImage removes an image by ID. An image that is gone or still in use is no error.
func (c *Client) RemoveImage(ctx context.Context, id string) error { panic("todo") }

// Spec describes a container to create.
type Spec struct {
	Name    string
	Config  *container.Config
	Host    *container.HostConfig
	Network *network.NetworkingConfig
}

func (c *Client) Create(ctx context.Context, spec Spec) (id string, err error) { panic("todo") }
func (c *Client) Start(ctx context.Context, id string) error                   { panic("todo") }

// Exit is how a container ended.
type Exit struct {
	Code       int
	OOMKilled  bool
	FinishedAt time.Time
	Error      string // what the daemon says went wrong, e.g. while starting; mostly empty
}

func (c *Client) Wait(ctx context.Context, id string) (Exit, error) { panic("todo") }

// Stop ends a container. signal "" means the image's STOPSIGNAL; missing or stopped is success.
func (c *Client) Stop(ctx context.Context, id, signal string, timeout time.Duration) error {
	panic("todo")
}
func (c *Client) Signal(ctx context.Context, id, sig string) error { panic("todo") }
func (c *Client) Remove(ctx context.Context, id string) error      { panic("todo") }

// Container is a container as the daemon sees it.
type Container struct {
	ID          string
	Name        string // without the leading slash
	Image       string // image ID
	Status      string // created, running, paused, restarting, removing, exited, dead
	Running     bool
	Pid         int
	CreatedAt   time.Time
	StartedAt   time.Time
	FinishedAt  time.Time
	ExitCode    int
	OOMKilled   bool
	Error       string
	Labels      map[string]string
	NetworkName string // first network, by name, with an IPv4 address
	IP, IPv6    string // in that network; empty if none
	Networks    int    // how many networks it is in
	SandboxKey  string // path of the network namespace
	TTY         bool
}

func (c *Client) Inspect(ctx context.Context, id string) (Container, error) { panic("todo") }

// List returns containers, stopped ones too, that carry all labels (value "" matches any). It fills in only ID, Name, Image,
// Status, Running, CreatedAt and Labels.
func (c *Client) List(ctx context.Context, labels map[string]string) ([]Container, error) {
	panic("todo")
}

// Sample is one measurement of a container's use.
type Sample struct {
	Time                     time.Time
	CPUPercent               float64 // 100 is one core
	CPUUserPercent           float64
	CPUSystemPercent         float64
	ThrottledPeriods         uint64
	ThrottledTime            uint64 // ns
	MemoryUsage, MemoryMax   uint64 // bytes; MemoryMax is 0 under cgroup v2
	MemoryRSS, MemoryCache   uint64 // bytes
	MemorySwap, MemoryMapped uint64 // bytes
	CgroupV2                 bool
}

func (c *Client) Stats(ctx context.Context, id string) (Sample, error) { panic("todo") }

// LogMark is the place of one piece of output in one stream. Pieces of one long line share a time, so the time alone
// would not say where to go on.
type LogMark struct {
	Time  time.Time `json:"time"`
	Count int       `json:"count"` // pieces with this time so far, this one included
}

// LogPosition is how far a container's output was delivered: the last mark of each stream. The zero value is the beginning.
type LogPosition struct {
	Stdout LogMark `json:"stdout"`
	Stderr LogMark `json:"stderr"`
}

// LineSink takes one line with its newline, or one piece of a long line. data is valid only during the call. After an error
// Logs returns that error; the caller goes on later from the last mark it saved.
type LineSink func(at LogMark, data []byte) error

func (c *Client) Logs(ctx context.Context, id string, from LogPosition, tty bool, stdout, stderr LineSink) error {
	panic("todo")
}

// ExecResult is what a command left behind: the last bytes of its output, and its exit code.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int
}

// Exec runs a command in a running container. At most limit bytes of each output, the last ones, are kept.
func (c *Client) Exec(ctx context.Context, id string, cmd []string, limit int) (ExecResult, error) {
	panic("todo")
}

// TermSize is the size of a terminal in characters.
type TermSize struct{ Height, Width uint }

// ExecStreamRequest is a command with live input and output.
type ExecStreamRequest struct {
	Cmd            []string
	TTY            bool
	Stdin          io.Reader // nil: none. The caller closes it after ExecStream has returned
	Stdout, Stderr io.Writer
	Resize         <-chan TermSize // nil: none
}

func (c *Client) ExecStream(ctx context.Context, id string, req ExecStreamRequest) (code int, err error) {
	panic("todo")
}

// SandboxSpec describes the pause container of a task group.
type SandboxSpec struct {
	Name        string
	Hostname    string
	Labels      map[string]string
	PullTimeout time.Duration
}

// Sandbox is a pause container.
type Sandbox struct {
	ID  string
	Key string // path of its network namespace
}

// CreateSandbox starts a pause container, or finds the running one of that name (created is false then).
func (c *Client) CreateSandbox(ctx context.Context, spec SandboxSpec) (s Sandbox, created bool, err error) {
	panic("todo")
}

// FindSandbox finds a pause container by labels. ErrNotFound if there is none.
func (c *Client) FindSandbox(ctx context.Context, labels map[string]string) (Sandbox, error) {
	panic("todo")
}

// RemoveSandbox ends and removes a pause container. A missing one is success.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error { panic("todo") }

var (
	ErrNotFound       = errors.New("no such container")
	ErrUnavailable    = errors.New("docker daemon is not reachable")
	ErrRuntimeMissing = errors.New("container runtime is not known to docker")
	ErrDeviceMissing  = errors.New("device cannot be given to the container")
	ErrImage          = errors.New("image cannot be had")
	ErrVolumeInUse    = errors.New("volume is attached on another node")
	ErrNotRunning     = errors.New("container is not running")
	ErrLogsUnreadable = errors.New("log driver does not support reading")
)

// Recoverable reports whether trying again later may help without any change of the job: the daemon was away, an image could not
// be pulled, a volume was still attached elsewhere.
func Recoverable(err error) bool { panic("todo") }
