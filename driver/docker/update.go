// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
)

// SetCPUs confines a container to some CPUs, given in the kernel's list format ("0-2,7"), while it runs.
//
// Errors: ErrNotFound, ErrUnavailable, or what the daemon says of the list.
func (c *Client) SetCPUs(ctx context.Context, id, cpus string) error {
	err := do(c, func(api *client.Client) error {
		_, err := api.ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{CpusetCpus: cpus}})
		return err
	})
	return wrap(err, "confining container %s to CPUs %s", short(id), cpus)
}
