package docker

import (
	"fmt"

	"github.com/docker/docker/client"
)

// Config says how to reach the daemon and where registry credentials come from.
type Config struct {
	// Endpoint is the daemon's address (unix:///var/run/docker.sock, tcp://host:2376). Empty means DOCKER_HOST,
	// DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, then the default socket.
	Endpoint string
	// Cert, Key and CA are PEM files for TLS. They are used only together with Endpoint.
	Cert, Key, CA string
	// AuthConfigFile is a file in the format of ~/.docker/config.json. It is read anew for every pull.
	AuthConfigFile string
	// AuthHelper is the suffix of a credential helper: "ecr-login" runs docker-credential-ecr-login.
	AuthHelper string
	// SpoolDir is where image archives are copied to, while they are loaded. Empty: where temporary files go.
	SpoolDir string
	// InfraImage is the image of the pause container of group networks.
	InfraImage string
	// InfraPinFile remembers which image InfraImage was. Empty: for as long as the client lives.
	InfraPinFile string
}

// Client speaks to one daemon. It is safe for concurrent use.
type Client struct {
	api        *client.Client
	config     Config
	pulls      pulls
	timing     timing
	credential credentialSources
	infra      infraPin
}

// New makes a client. It does not speak to the daemon, which may be away for now; it fails on an address or TLS file that
// cannot be used.
//
// The client has no timeout of its own: one would cut off Stop, Wait, Logs and long pulls alike. Contexts bound the calls.
func New(cfg Config) (*Client, error) {
	api, err := client.NewClientWithOpts(options(cfg)...)
	if err != nil {
		return nil, fmt.Errorf("setting up the docker client for endpoint %q: %w", cfg.Endpoint, err)
	}
	return &Client{
		api:        api,
		config:     cfg,
		timing:     defaultTiming,
		credential: credentialSources{file: cfg.AuthConfigFile, helper: cfg.AuthHelper},
		infra:      infraPin{path: cfg.InfraPinFile},
	}, nil
}

// options turns cfg into client options. The API version is negotiated in every case: a daemon refuses versions it does not
// know, new or old.
func options(cfg Config) []client.Opt {
	negotiate := client.WithAPIVersionNegotiation()
	if cfg.Endpoint == "" {
		return []client.Opt{client.FromEnv, negotiate}
	}
	opts := []client.Opt{client.WithHost(cfg.Endpoint), negotiate}
	if cfg.Cert != "" || cfg.Key != "" || cfg.CA != "" {
		opts = append(opts, client.WithTLSClientConfig(cfg.CA, cfg.Cert, cfg.Key))
	}
	return opts
}

// Close lets go of idle connections. Calls in flight end with their own contexts.
func (c *Client) Close() error {
	return c.api.Close()
}
