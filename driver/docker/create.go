// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
)

// Spec describes a container to create.
type Spec struct {
	// Name is the container's name. Labels in Config say which attempt of which task it is.
	Name    string
	Config  *container.Config // its Image is an ID
	Host    *container.HostConfig
	Network *network.NetworkingConfig
	MAC     string // of the container in the network of its NetworkMode; empty: the daemon chooses
	// ImageName is how people know the image; the daemon shows it in place of the ID as long as it leads there. May be empty.
	ImageName string
	// Attempts is how often Create makes room for the name, which other containers may have. 0: five times.
	Attempts int
}

// Create makes a container and returns its ID.
//
// A container that already has the name and all labels of spec was made by a call whose answer got lost. If it runs, its ID is
// returned, and Start on it does nothing; if not, it is removed. Any other container keeps the name: which of two starts is
// the later one is not known here. Failures that pass by themselves are retried.
//
// Errors: ErrImage (the image is gone), ErrRuntimeMissing, ErrVolumeInUse, ErrUnavailable, ErrNameTaken, or what the daemon
// says of a bad spec.
func (c *Client) Create(ctx context.Context, spec Spec) (string, error) {
	poll := c.timing.poll()
	for made := 0; ; made++ {
		id, err := c.create(ctx, spec)
		if !cerrdefs.IsConflict(err) {
			return id, wrap(err, "creating container %s", spec.Name)
		}
		if made == cmp.Or(spec.Attempts, defaultAttempts) {
			return "", fmt.Errorf("creating container %s: %w again after room was made for it %d times: %w", spec.Name, ErrNameTaken, made, err)
		}
		adopted, err := c.settle(ctx, spec)
		if adopted != "" || err != nil {
			return adopted, err
		}
		if err := poll.wait(ctx); err != nil { // the daemon may release the name a little after its container
			return "", fmt.Errorf("creating container %s: %w", spec.Name, err)
		}
	}
}

const defaultAttempts = 5

// create makes a container that goes by its image's name. The daemon resolves that once more, and it may have become another
// image's since the ID was found out: then the container is made from the ID.
func (c *Client) create(ctx context.Context, spec Spec) (string, error) {
	if spec.ImageName == "" {
		return c.createOnce(ctx, spec)
	}
	named, config := spec, *spec.Config
	config.Image, named.Config = spec.ImageName, &config
	id, err := c.createOnce(ctx, named)
	if err != nil {
		if errors.Is(sentinel(err), ErrImage) { // the name is no more
			return c.createOnce(ctx, spec)
		}
		return "", err
	}
	made, err := c.Inspect(ctx, id)
	if err != nil || made.Image == spec.Config.Image {
		return id, err
	}
	if err := c.Remove(ctx, id); err != nil {
		return "", err
	}
	return c.createOnce(ctx, spec)
}

func (c *Client) createOnce(ctx context.Context, spec Spec) (id string, err error) {
	err = c.timing.retry(ctx, func() error {
		spec, err := c.withMAC(ctx, spec)
		if err != nil {
			return err
		}
		created, err := ask(c, func(api *client.Client) (container.CreateResponse, error) {
			return api.ContainerCreate(ctx, spec.Config, spec.Host, spec.Network, nil, spec.Name)
		})
		id = created.ID
		return err
	})
	return id, err
}

// macPerNetwork is the API version since which a MAC address belongs to a network. The client refuses it there with an older
// daemon, and removes it from the container's configuration with a newer one.
const macPerNetwork = "1.44"

// withMAC puts the MAC address of spec where the daemon looks for it.
func (c *Client) withMAC(ctx context.Context, spec Spec) (Spec, error) {
	if spec.MAC == "" {
		return spec, nil
	}
	daemon, err := ask(c, func(api *client.Client) (types.Ping, error) { return api.Ping(ctx) })
	if err != nil {
		return spec, err
	}
	if versions.LessThan(daemon.APIVersion, macPerNetwork) {
		config := *spec.Config
		config.MacAddress = spec.MAC //nolint:staticcheck // the only place that old daemons know
		spec.Config = &config
		return spec, nil
	}
	endpoints := map[string]*network.EndpointSettings{}
	if spec.Network != nil {
		maps.Copy(endpoints, spec.Network.EndpointsConfig)
	}
	name, endpoint := string(spec.Host.NetworkMode), network.EndpointSettings{}
	if given := endpoints[name]; given != nil {
		endpoint = *given
	}
	endpoint.MacAddress = spec.MAC
	endpoints[name] = &endpoint
	spec.Network = &network.NetworkingConfig{EndpointsConfig: endpoints}
	return spec, nil
}

// settle looks at the container that has the name of spec: it returns its ID if it is to be adopted, and removes it if it was
// made by an earlier call and does not run.
func (c *Client) settle(ctx context.Context, spec Spec) (adopted string, err error) {
	there, err := c.Inspect(ctx, spec.Name)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !carries(there.Labels, spec.Config.Labels) {
		return "", fmt.Errorf("creating container %s: %w: container %s has it, which is not of this start; remove it if nothing needs it",
			spec.Name, ErrNameTaken, short(there.ID))
	}
	if there.Running {
		return there.ID, nil
	}
	return "", c.Remove(ctx, there.ID)
}

// carries reports whether a container has all labels that were asked for; more may come from its image. Without any to ask
// for, nothing is known of it.
func carries(has, want map[string]string) bool {
	for key, value := range want {
		if got, ok := has[key]; !ok || got != value {
			return false
		}
	}
	return len(want) > 0
}
