package docker

import (
	"context"
	"maps"
	"slices"

	"github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
)

// Info is what the daemon says of itself.
type Info struct {
	ID            string // as Client.ID returns it
	Version       string
	OSType        string
	CgroupVersion string            // "1" or "2"
	BridgeIP      string            // gateway of the network "bridge"; empty if there is none
	Runtimes      []string          // sorted
	RuntimePaths  map[string]string // of their programs, by name; only of those that the daemon's configuration names by path
}

// ID asks the daemon who it is. It keeps its ID with its data, over restarts; another ID means other containers. ErrUnavailable if
// it is away.
func (c *Client) ID(ctx context.Context) (string, error) {
	got, err := c.info(ctx)
	return got.ID, wrap(err, "asking docker for its ID")
}

// Info asks the daemon for its version and abilities. ErrUnavailable if it is away.
func (c *Client) Info(ctx context.Context) (Info, error) {
	got, err := c.info(ctx)
	if err != nil {
		return Info{}, wrap(err, "asking docker for its version")
	}
	bridge, err := c.bridgeIP(ctx)
	if err != nil {
		return Info{}, err
	}
	paths := map[string]string{}
	for name, runtime := range got.Runtimes {
		if runtime.Path != "" {
			paths[name] = runtime.Path
		}
	}
	return Info{
		RuntimePaths:  paths,
		ID:            got.ID,
		Version:       got.ServerVersion,
		OSType:        got.OSType,
		CgroupVersion: got.CgroupVersion,
		BridgeIP:      bridge,
		Runtimes:      slices.Sorted(maps.Keys(got.Runtimes)),
	}, nil
}

func (c *Client) info(ctx context.Context) (system.Info, error) {
	return ask(c, func(api *client.Client) (system.Info, error) { return api.Info(ctx) })
}

func (c *Client) bridgeIP(ctx context.Context) (string, error) {
	bridge, err := ask(c, func(api *client.Client) (network.Inspect, error) {
		return api.NetworkInspect(ctx, "bridge", network.InspectOptions{})
	})
	if cerrdefs.IsNotFound(err) {
		return "", nil // dockerd runs with --bridge=none
	}
	if err != nil {
		return "", wrap(err, "asking docker for its bridge network")
	}
	for _, ipam := range bridge.IPAM.Config {
		if ipam.Gateway != "" {
			return ipam.Gateway, nil
		}
	}
	return "", nil
}
