// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"sync"
)

// custody says which attempts somebody is looking after: a start, a live task, its
// end, or the sweeper. One party at a time, so that the sweeper cannot release what
// a start is just claiming again.
type custody struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when given up
}

func newCustody() *custody { return &custody{held: map[string]chan struct{}{}} }

// take waits until the attempt is free and takes it.
func (c *custody) take(ctx context.Context, attempt string) error {
	for {
		c.mu.Lock()
		held, taken := c.held[attempt]
		if !taken {
			c.held[attempt] = make(chan struct{})
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try takes the attempt if it is free.
func (c *custody) try(attempt string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.held[attempt]; taken {
		return false
	}
	c.held[attempt] = make(chan struct{})
	return true
}

// taken reports whether somebody has the attempt.
func (c *custody) taken(attempt string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.held[attempt]
	return taken
}

// giveUp lets the next party have the attempt.
func (c *custody) giveUp(attempt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, taken := c.held[attempt]; taken {
		close(held)
		delete(c.held, attempt)
	}
}
