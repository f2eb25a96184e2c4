// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// combiner joins the changes that one process wants to make to one GPU at the
// same time into one change of its key. Without it each would make the others
// read and decide again: a node that starts many tasks at once would spend its
// time on conflicts with itself.
//
// The first caller leads: it makes its change and those that were waiting when
// it began. Those that come meanwhile wait, and the first of them leads next.
type combiner struct {
	mu     sync.Mutex
	queues map[GPUID][]*pendingChange // the first of each leads, or is about to
}

// pendingChange is one caller's change.
type pendingChange struct {
	decide func(GPUID, *Ledger) (bool, error)
	lead   chan struct{} // closed when it is this caller's turn to lead
	done   chan error    // the outcome, if another caller led
	begun  bool          // whether a leader is at it
}

// errLeaderLeft is the outcome of an order whose leader's own time was up.
var errLeaderLeft = errors.New("the leading caller gave up")

// do makes the change, alone or with others.
func (c *combiner) do(ctx context.Context, gpu GPUID, decide func(GPUID, *Ledger) (bool, error),
	makeAll func(context.Context, []*pendingChange) []error) error {
	for {
		err := c.once(ctx, gpu, &pendingChange{decide: decide, lead: make(chan struct{}), done: make(chan error, 1)}, makeAll)
		if !errors.Is(err, errLeaderLeft) {
			return err
		}
	}
}

func (c *combiner) once(ctx context.Context, gpu GPUID, mine *pendingChange, makeAll func(context.Context, []*pendingChange) []error) error {
	c.enqueue(gpu, mine)
	select {
	case err := <-mine.done:
		return err
	case <-mine.lead:
	case <-ctx.Done():
		if c.withdraw(gpu, mine) {
			return fmt.Errorf("%w: an earlier change of this process has no answer yet: %w", errUndecided, ctx.Err())
		}
		select { // too late: it is under way, or it leads
		case err := <-mine.done:
			return err
		case <-mine.lead:
		}
	}
	batch := c.take(gpu)
	outcomes := makeAll(ctx, batch)
	c.pass(gpu, len(batch))
	for i, order := range batch[1:] {
		err := outcomes[i+1]
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = errLeaderLeft
		}
		order.done <- err
	}
	return outcomes[0]
}

func (c *combiner) enqueue(gpu GPUID, o *pendingChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[GPUID][]*pendingChange{}
	}
	c.queues[gpu] = append(c.queues[gpu], o)
	if len(c.queues[gpu]) == 1 {
		close(o.lead)
	}
}

// withdraw removes an order that nobody has begun with.
func (c *combiner) withdraw(gpu GPUID, o *pendingChange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.queues[gpu]
	for i := len(queue) - 1; i > 0; i-- { // the first is being done
		if queue[i] == o && !o.begun {
			c.queues[gpu] = append(queue[:i:i], queue[i+1:]...)
			return true
		}
	}
	return false
}

// take returns all orders that wait, the caller's first.
func (c *combiner) take(gpu GPUID) []*pendingChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := append([]*pendingChange(nil), c.queues[gpu]...)
	for _, order := range batch {
		order.begun = true
	}
	return batch
}

// pass removes what was done and lets the next caller lead.
func (c *combiner) pass(gpu GPUID, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.queues[gpu][count:]
	if len(rest) == 0 {
		delete(c.queues, gpu)
		return
	}
	c.queues[gpu] = rest
	close(rest[0].lead)
}
