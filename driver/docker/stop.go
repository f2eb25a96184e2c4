// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// Stop ends a container and returns when it has ended. A missing or stopped one is success.
//
// Without a signal the daemon sends the image's STOPSIGNAL (SIGTERM by default), and SIGKILL after timeout. With one, that
// signal is sent first; a container that outlives timeout then gets its STOPSIGNAL and SIGKILL at once. Parts of a second
// count as a whole one.
//
// Errors: ErrStuck if it does not even end by SIGKILL, ErrUnavailable, or an unknown signal.
func (c *Client) Stop(ctx context.Context, id, signal string, timeout time.Duration) error {
	ctx, cancel := c.patience(ctx, id, timeout+c.timing.stopGrace)
	defer cancel()
	if signal != "" {
		err := c.timing.retry(ctx, func() error { return c.Signal(ctx, id, signal) })
		if err == nil {
			err = c.endsWithin(ctx, id, timeout)
		}
		if !errors.Is(err, errOutlived) {
			return ignoreEnded(stuckOr(ctx, err))
		}
		timeout = 0
	}
	seconds := int(math.Ceil(timeout.Seconds()))
	err := c.timing.retry(ctx, func() error {
		return do(c, func(api *client.Client) error {
			return api.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds})
		})
	})
	return ignoreEnded(stuckOr(ctx, wrap(err, "stopping container %s", short(id))))
}

// errOutlived: the container did not end within the time it had.
var errOutlived = fmt.Errorf("container outlived its kill timeout: %w", context.DeadlineExceeded)

func (c *Client) endsWithin(ctx context.Context, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errOutlived)
	defer cancel()
	_, err := c.Wait(ctx, id)
	return err
}

// ignoreEnded makes success of the errors that say there is nothing left to stop.
func ignoreEnded(err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotRunning) {
		return nil
	}
	return err
}

// Signal sends a signal ("SIGHUP", "HUP" or "1") to a container's first process.
//
// Errors: ErrNotFound, ErrNotRunning, ErrUnavailable, or an unknown signal.
func (c *Client) Signal(ctx context.Context, id, signal string) error {
	err := do(c, func(api *client.Client) error { return api.ContainerKill(ctx, id, signal) })
	return wrap(err, "sending %s to container %s", signal, short(id))
}

// Remove removes a container, running or not, with its anonymous volumes. It returns nil only when the container is gone;
// a missing one is success.
//
// Errors: ErrStuck if it does not go away, ErrUnavailable.
func (c *Client) Remove(ctx context.Context, id string) error {
	ctx, cancel := c.patience(ctx, id, c.timing.removeGrace)
	defer cancel()
	err := c.timing.retry(ctx, func() error {
		err := do(c, func(api *client.Client) error {
			return api.ContainerRemove(ctx, id, container.RemoveOptions{RemoveVolumes: true, Force: true})
		})
		if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) {
			return nil // a conflict is another removal under way
		}
		return err
	})
	if err == nil {
		err = c.gone(ctx, id)
	}
	return stuckOr(ctx, wrap(err, "removing container %s", short(id)))
}

// gone waits until the daemon no longer knows the container.
func (c *Client) gone(ctx context.Context, id string) error {
	poll := c.timing.poll()
	var away error
	for {
		_, err := c.Inspect(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case errors.Is(err, ErrUnavailable):
			away = err
		case ctx.Err() == nil:
			away = nil
		}
		if err := poll.wait(ctx); err != nil {
			return cmp.Or(away, err)
		}
	}
}

// patience bounds a call that the daemon may never answer, because the kernel does not release a process. It ends before a
// deadline of the caller does, so that the error names what took the time.
func (c *Client) patience(ctx context.Context, id string, limit time.Duration) (context.Context, context.CancelFunc) {
	if end, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(end)*9/10)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("container %s is still there after %s: %w: %w",
		short(id), limit.Round(time.Millisecond), ErrStuck, context.DeadlineExceeded))
}

// stuckOr puts the cause of ctx, if that has ended, in the place of the error it led to. Of an unreachable daemon it is
// not known what took the time.
func stuckOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnavailable) {
		return context.Cause(ctx)
	}
	return err
}
