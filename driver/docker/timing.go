// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"nomad-gpu-mem/internal/pause"
)

// timing holds the package's patience. Tests shorten it.
type timing struct {
	progressEvery time.Duration // between two reports of a pull
	stopGrace     time.Duration // on top of the kill timeout, before a container counts as stuck
	removeGrace   time.Duration // before a container that does not go away counts as stuck
	retryFirst    time.Duration // pause before the first retry of a failed call; it grows fourfold
	awayTries     uint          // attempts of a call while the daemon is unreachable: together they outlast its restart
	errorTries    uint          // attempts of a call that the daemon answers with an internal error
	startTries    uint          // attempts of a start that it answers so
	pollFirst     time.Duration // pause before the daemon is asked again whether something has changed
	pollMost      time.Duration // to which that pause grows
	drainGrace    time.Duration // without output, after which a terminal whose process has ended is at its end
	drainMost     time.Duration // for all output of such a terminal
}

var defaultTiming = timing{
	progressEvery: 2 * time.Minute,
	stopGrace:     5 * time.Minute,
	removeGrace:   2 * time.Minute,
	retryFirst:    200 * time.Millisecond,
	awayTries:     6,
	errorTries:    4,
	startTries:    6, // as often, and with the same pauses, as Nomad's own driver
	pollFirst:     50 * time.Millisecond,
	pollMost:      5 * time.Second,
	drainGrace:    time.Second,
	drainMost:     10 * time.Second,
}

// retry calls op until it succeeds, fails for good, or was tried often enough. It returns the last error, which is
// ErrUnavailable also if ctx ended while the daemon was unreachable.
//
// An unreachable daemon comes back: retry waits for about a minute. An internal error mostly comes from the job (a user or a
// runtime that does not work), and so its author gets it sooner.
func (t timing) retry(ctx context.Context, op func() error) error {
	return t.retryIf(ctx, passing, t.errorTries, op)
}

// retryIf is retry with another view of what passes by itself, and of how often an error of the daemon's is worth a try.
func (t timing) retryIf(ctx context.Context, passing func(error) bool, errorTries uint, op func() error) error {
	grows := backoff.NewExponentialBackOff()
	grows.InitialInterval = t.retryFirst
	grows.Multiplier = 4
	failed := uint(0) // with an internal error
	var away error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := op()
		switch {
		case err == nil:
			return struct{}{}, nil
		case errors.Is(sentinel(err), ErrUnavailable):
			away = err
		case ctx.Err() == nil:
			away = nil
			failed++
		}
		if !passing(err) || failed >= errorTries {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(grows), backoff.WithMaxTries(t.awayTries), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return cmp.Or(away, err)
	}
	return nil
}

// poller paces a loop that asks the daemon again and again.
type poller struct{ next *backoff.ExponentialBackOff }

func (t timing) poll() poller {
	grows := backoff.NewExponentialBackOff()
	grows.InitialInterval = t.pollFirst
	grows.MaxInterval = t.pollMost
	return poller{grows}
}

// wait pauses, a little longer each time. It fails only when ctx ends.
func (p poller) wait(ctx context.Context) error {
	return pause.For(ctx, p.next.NextBackOff())
}
