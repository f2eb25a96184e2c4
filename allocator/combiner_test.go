// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"testing"

	"github.com/shoenig/test/must"
)

// slow is a batch under way that the test ends.
type slow struct {
	sizes   chan int
	proceed chan struct{}
}

func newSlow() *slow { return &slow{make(chan int), make(chan struct{})} }

func (s *slow) make(ctx context.Context, batch []*pendingChange) []error {
	outcomes := make([]error, len(batch))
	s.sizes <- len(batch)
	select {
	case <-s.proceed:
	case <-ctx.Done():
		for i := range outcomes {
			outcomes[i] = ctx.Err()
		}
	}
	return outcomes
}

func (c *combiner) waiting(gpu GPUID) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queues[gpu])
}

// start begins a change and returns once it is in the queue.
func start(ctx context.Context, c *combiner, s *slow) chan error {
	before, ended := c.waiting("GPU-1"), make(chan error, 1)
	go func() { ended <- c.do(ctx, "GPU-1", nil, s.make) }()
	for c.waiting("GPU-1") == before {
		select {
		case <-ctx.Done():
			return ended
		default:
		}
	}
	return ended
}

// Callers that arrive while a change is under way are combined.
func TestCombiner_joins_those_who_wait(t *testing.T) {
	t.Parallel()
	c, s := &combiner{}, newSlow()
	first := start(t.Context(), c, s)
	must.Eq(t, 1, <-s.sizes)
	second, third := start(t.Context(), c, s), start(t.Context(), c, s)
	s.proceed <- struct{}{}
	must.NoError(t, <-first)
	must.Eq(t, 2, <-s.sizes)
	s.proceed <- struct{}{}
	must.NoError(t, <-second)
	must.NoError(t, <-third)
	must.Zero(t, c.waiting("GPU-1"))
}

// A leader whose context ends does not fail the others, and waiting callers may leave.
func TestCombiner_leaders_and_others_give_up(t *testing.T) {
	t.Parallel()
	c, s := &combiner{}, newSlow()
	first := start(t.Context(), c, s)
	must.Eq(t, 1, <-s.sizes)
	leaderTime, giveUp := context.WithCancel(t.Context())
	leader := start(leaderTime, c, s)
	follower := start(t.Context(), c, s)
	impatience, leave := context.WithCancel(t.Context())
	leaver := start(impatience, c, s)
	leave()
	must.ErrorIs(t, <-leaver, context.Canceled)
	must.Eq(t, 3, c.waiting("GPU-1"))

	s.proceed <- struct{}{}
	must.NoError(t, <-first)
	must.Eq(t, 2, <-s.sizes)
	giveUp()
	must.ErrorIs(t, <-leader, context.Canceled)
	must.Eq(t, 1, <-s.sizes) // the follower tries again by itself
	s.proceed <- struct{}{}
	must.NoError(t, <-follower)
}
