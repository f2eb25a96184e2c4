package docker

import (
	"context"

	"github.com/docker/docker/api/types/container"
)

// Start starts a created container. One that runs already is success.
//
// Errors: ErrRuntimeMissing, ErrDeviceMissing, ErrLeftover, ErrNotFound, ErrUnavailable, or what the daemon says of the command, the user or
// a mount. After an error the container may be there still; the caller removes it.
func (c *Client) Start(ctx context.Context, id string) error {
	err := c.timing.retry(ctx, func() error {
		return c.api.ContainerStart(ctx, id, container.StartOptions{})
	})
	return wrap(err, "starting container %s", short(id))
}
