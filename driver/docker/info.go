// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"maps"
	"slices"

	"github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
)

// Info is what the daemon says of itself.
type Info struct {
	ID            string // as Client.ID returns it
	Version       string
	OSType        string
	CgroupVersion string   // "1" or "2"
	BridgeIP      string   // gateway of the network "bridge"; empty if there is none
	Runtimes      []string // sorted
	// DefaultRuntime is that of containers which name none.
	DefaultRuntime string
	CDI            CDI
	RuntimePaths   map[string]string // of their programs, by name; only of those that the daemon's configuration names by path
}

// CDI is what the daemon can give a container by the Container Device Interface.
type CDI struct {
	Enabled bool     // it reads specifications
	Lists   bool     // it tells which devices they name: since Docker 28.2
	Devices []string // their names, such as nvidia.com/gpu=GPU-...
}

// ID asks the daemon who it is. It keeps its ID with its data, over restarts; another ID means other containers. ErrUnavailable if
// it is unreachable.
func (c *Client) ID(ctx context.Context) (string, error) {
	got, _, err := c.info(ctx)
	return got.ID, wrap(err, "asking docker for its ID")
}

// Info asks the daemon for its version and abilities. ErrUnavailable if it is unreachable.
func (c *Client) Info(ctx context.Context) (Info, error) {
	got, version, err := c.info(ctx)
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
		RuntimePaths:   paths,
		DefaultRuntime: got.DefaultRuntime,
		CDI:            cdiOf(got, version),
		ID:             got.ID,
		Version:        got.ServerVersion,
		OSType:         got.OSType,
		CgroupVersion:  got.CgroupVersion,
		BridgeIP:       bridge,
		Runtimes:       slices.Sorted(maps.Keys(got.Runtimes)),
	}, nil
}

// cdiListed is the API version since which the daemon lists CDI devices.
const cdiListed = "1.50"

// cdiOf reads what the daemon says of CDI. An empty list and none look the same; the API version keeps them apart.
func cdiOf(got system.Info, version string) CDI {
	found := CDI{Enabled: len(got.CDISpecDirs) > 0, Lists: !versions.LessThan(version, cdiListed)}
	for _, device := range got.DiscoveredDevices {
		if device.Source == "cdi" {
			found.Devices = append(found.Devices, device.ID)
		}
	}
	return found
}

// info also returns the API version that the daemon was asked by.
func (c *Client) info(ctx context.Context) (got system.Info, version string, err error) {
	got, err = ask(c, func(api *client.Client) (system.Info, error) {
		got, err := api.Info(ctx)
		version = api.ClientVersion()
		return got, err
	})
	return got, version, err
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
