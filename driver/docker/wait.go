// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
)

// Exit is how a container ended.
type Exit struct {
	Code       int
	OOMKilled  bool // as the kernel reported it; never guessed from the code
	FinishedAt time.Time
	Error      string // what the daemon says went wrong, for example while starting; mostly empty
}

// Wait waits for a container to end. Only the daemon's word that it has ended counts: when the connection breaks, or the
// daemon restarts under a container that lives on, Wait asks again, for as long as it takes.
//
// A container that was created and never started counts as ended. Errors: ErrNotFound if the container is gone without a
// trace, or the cause of ctx.
func (c *Client) Wait(ctx context.Context, id string) (Exit, error) {
	poll := c.timing.poll()
	for {
		if c.waitOnce(ctx, id) == nil {
			poll = c.timing.poll()
		}
		now, err := c.Inspect(ctx, id)
		switch {
		case ctx.Err() != nil:
			return Exit{}, context.Cause(ctx)
		case errors.Is(err, ErrNotFound):
			return Exit{}, err
		case err == nil && !now.Running:
			return Exit{Code: now.ExitCode, OOMKilled: now.OOMKilled, FinishedAt: now.FinishedAt, Error: now.Error}, nil
		}
		if err := poll.wait(ctx); err != nil {
			return Exit{}, err
		}
	}
}

// waitOnce returns when the daemon thinks that the container has ended, or when the connection is lost. Either is a mere hint.
func (c *Client) waitOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return do(c, func(api *client.Client) error {
		ended, failed := api.ContainerWait(ctx, id, container.WaitConditionNotRunning)
		// No case for ctx: it ends the call, and one of the two must be received or the client's goroutine stays.
		select {
		case <-ended:
			return nil
		case err := <-failed:
			return err
		}
	})
}
