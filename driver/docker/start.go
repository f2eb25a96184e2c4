// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
)

// Start starts a created container. One that runs already is success.
//
// As Nomad's own driver has it, an internal error (500) is tried again for about a minute: a port may still be in use by the
// last container's proxy, or a network by its endpoint. After that it is ErrStart, which Nomad should try again later. Faults of
// the job are neither.
//
// Errors: ErrStart, ErrRuntimeMissing, ErrDeviceMissing, ErrLeftover, ErrNotFound, ErrUnavailable, or what the daemon says of the
// command, the user or a mount. After an error the container may be there still, and after ErrNoAnswer it may even start later;
// the caller removes it.
func (c *Client) Start(ctx context.Context, id string) error {
	err := c.timing.retryIf(ctx, passingStart, c.timing.startTries, func() error {
		return do(c, func(api *client.Client) error { return api.ContainerStart(ctx, id, container.StartOptions{}) })
	})
	if passingStart(err) && !errors.Is(sentinel(err), ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrStart, err)
		if remedy := notReady(err); remedy != "" {
			err = fmt.Errorf("%w; %s", err, remedy)
		}
	}
	return wrap(err, "starting container %s", short(id))
}
