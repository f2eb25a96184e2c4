// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// combiner joins concurrent changes of one process to one GPU into one write of its key.
// Without it they would conflict with each other: a node that starts many tasks at once
// would spend its time on retries.
//
// The first caller leads: it makes its change and all changes that wait when it begins.
// Callers that arrive meanwhile wait, and the first of them leads next.
type combiner struct {
	mu     sync.Mutex
	queues map[GPUID][]*pendingChange // the first of each leads, or is about to
}

// pendingChange is one caller's change.
type pendingChange struct {
	decide func(GPUID, *Ledger) (bool, error)
	lead   chan struct{} // closed when it is this caller's turn to lead
	done   chan error    // the outcome, if another caller led
	begun  bool          // whether a leader has started it
}

// errLeaderLeft is returned when the context of the leading caller ended first.
var errLeaderLeft = errors.New("the leading caller's context ended")

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
		select { // too late to withdraw: it is under way, or it leads
		case err := <-mine.done:
			return err
		case <-mine.lead:
		}
	}
	batch := c.take(gpu)
	outcomes := makeAll(ctx, batch)
	c.pass(gpu, len(batch))
	for i, change := range batch[1:] {
		err := outcomes[i+1]
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = errLeaderLeft
		}
		change.done <- err
	}
	return outcomes[0]
}

func (c *combiner) enqueue(gpu GPUID, p *pendingChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[GPUID][]*pendingChange{}
	}
	c.queues[gpu] = append(c.queues[gpu], p)
	if len(c.queues[gpu]) == 1 {
		close(p.lead)
	}
}

// withdraw removes a change that no leader has started.
func (c *combiner) withdraw(gpu GPUID, p *pendingChange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.queues[gpu]
	for i := len(queue) - 1; i > 0; i-- { // the first is under way
		if queue[i] == p && !p.begun {
			c.queues[gpu] = append(queue[:i:i], queue[i+1:]...)
			return true
		}
	}
	return false
}

// take returns all waiting changes, the caller's first.
func (c *combiner) take(gpu GPUID) []*pendingChange {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := append([]*pendingChange(nil), c.queues[gpu]...)
	for _, change := range batch {
		change.begun = true
	}
	return batch
}

// pass removes the changes that were made and lets the next caller lead.
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
