// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"
)

// Config says how to reach the daemon and where registry credentials come from.
type Config struct {
	// Endpoint is the daemon's address (unix:///var/run/docker.sock, tcp://host:2376). Empty means DOCKER_HOST,
	// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, then the default socket.
	Endpoint string
	// Cert, Key and CA are PEM files for TLS. They are used only together with Endpoint.
	Cert, Key, CA string
	// AuthConfigFile is a file in the format of ~/.docker/config.json. Every pull reads it again.
	AuthConfigFile string
	// AuthHelper is the suffix of a credential helper: "ecr-login" runs docker-credential-ecr-login.
	AuthHelper string
	// SpoolDir is where image archives are copied to, while they are loaded. Empty: where temporary files go.
	SpoolDir string
	// AnswerTimeout is how long the daemon may take to answer a call. 0: five minutes, as Nomad's own driver gives it.
	AnswerTimeout time.Duration
	// InfraImage is the image of the pause container of group networks.
	InfraImage string
	// InfraPinFile remembers which image InfraImage was. Empty: for as long as the client lives.
	InfraPinFile string
}

// Client speaks to one daemon. It is safe for concurrent use.
type Client struct {
	sessions   *sessions
	config     Config
	pulls      pulls
	timing     timing
	credential credentialSources
	infra      infraPin
}

// New makes a client. It does not speak to the daemon, which may be away for now; it fails on an address or TLS file that
// cannot be used.
//
// Every call but those that wait for a container, its output or an image ends after AnswerTimeout at the latest, with an error
// that matches ErrNoAnswer. Contexts bound all of them.
func New(cfg Config) (*Client, error) {
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, answerTimeout)
	sessions, err := openSessions(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{
		sessions:   sessions,
		config:     cfg,
		timing:     defaultTiming,
		credential: credentialSources{file: cfg.AuthConfigFile, helper: cfg.AuthHelper},
		infra:      infraPin{path: cfg.InfraPinFile},
	}, nil
}

// connect makes a session. fixed: with the API version in DOCKER_API_VERSION, if there is one.
func connect(cfg Config, fixed bool) (*session, error) {
	transport := &http.Transport{MaxIdleConns: idleConns, IdleConnTimeout: idleTime}
	through := &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
	opts, err := options(cfg, transport, fixed)
	if err != nil {
		return nil, fmt.Errorf("setting up the docker client for endpoint %q: %w", cfg.Endpoint, err)
	}
	api, err := client.NewClientWithOpts(append([]client.Opt{client.WithHTTPClient(through)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("setting up the docker client for endpoint %q: %w", cfg.Endpoint, err)
	}
	transport.DialContext = dialing(transport.DialContext) // only now does it lead to the endpoint
	watch := &offer{next: deadlines{next: through.Transport, limit: cfg.AnswerTimeout}}
	through.Transport = watch
	return &session{api: api, offer: watch}, nil
}

// As the client's own: without a bound, idle connections would be kept by a process that lives long.
const (
	idleConns = 6
	idleTime  = 30 * time.Second
)

// options turns cfg into client options. The API version is negotiated in every case: a daemon refuses versions it does not
// know, new or old.
func options(cfg Config, transport *http.Transport, fixed bool) ([]client.Opt, error) {
	negotiate := client.WithAPIVersionNegotiation()
	if cfg.Endpoint == "" {
		tls, err := tlsFromEnv()
		transport.TLSClientConfig = tls
		opts := []client.Opt{client.WithHost(cmp.Or(os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)), negotiate}
		if fixed {
			opts = append(opts, client.WithVersionFromEnv())
		}
		return opts, err
	}
	opts := []client.Opt{client.WithHost(cfg.Endpoint), negotiate}
	if cfg.Cert != "" || cfg.Key != "" || cfg.CA != "" {
		opts = append(opts, client.WithTLSClientConfig(cfg.CA, cfg.Cert, cfg.Key))
	}
	return opts, nil
}

// tlsFromEnv is what client.FromEnv makes of the environment. That option would put another transport in the place of ours.
func tlsFromEnv() (*tls.Config, error) {
	dir := os.Getenv(client.EnvOverrideCertPath)
	if dir == "" {
		return nil, nil //nolint:nilnil // no TLS
	}
	return tlsconfig.Client(tlsconfig.Options{
		CAFile:             filepath.Join(dir, "ca.pem"),
		CertFile:           filepath.Join(dir, "cert.pem"),
		KeyFile:            filepath.Join(dir, "key.pem"),
		InsecureSkipVerify: os.Getenv(client.EnvTLSVerify) == "",
	})
}

// Close closes idle connections. Calls in flight end with their own contexts.
func (c *Client) Close() error {
	return c.sessions.close()
}
