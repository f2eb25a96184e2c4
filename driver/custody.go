package driver

import (
	"context"
	"sync"
)

// custody says which attempts somebody is looking after: a start, a live task, its
// end, or a loop that looks in between. One party at a time, so that the sweeper cannot release what
// a start is just claiming again.
//
// A start, a task and an end keep an attempt. A loop only looks at it, for a moment: loops wait for each other, since
// those whose periods are multiples of each other would otherwise meet, and give up, each time.
type custody struct {
	mu   sync.Mutex
	held map[string]*holding
}

type holding struct {
	kept  bool          // by a start, a task or an end
	ended chan struct{} // closed when given up
}

func newCustody() *custody { return &custody{held: map[string]*holding{}} }

// take waits until the attempt is free, and keeps it.
func (c *custody) take(ctx context.Context, attempt string) error {
	for {
		held := c.enter(attempt, true)
		if held == nil {
			return nil
		}
		select {
		case <-held.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look takes the attempt for a moment, and reports false if it is kept, or if ctx ends before another loop has given it
// up.
func (c *custody) look(ctx context.Context, attempt string) bool {
	for {
		held := c.enter(attempt, false)
		if held == nil || held.kept {
			return held == nil
		}
		select {
		case <-held.ended:
		case <-ctx.Done():
			return false
		}
	}
}

// enter takes the attempt if it is free. If not, it returns who has it.
func (c *custody) enter(attempt string, keep bool) (other *holding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, taken := c.held[attempt]; taken {
		return held
	}
	c.held[attempt] = &holding{kept: keep, ended: make(chan struct{})}
	return nil
}

// kept reports whether a start, a task or an end has the attempt.
func (c *custody) kept(attempt string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, taken := c.held[attempt]
	return taken && held.kept
}

// giveUp lets the next party have the attempt.
func (c *custody) giveUp(attempt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, taken := c.held[attempt]; taken {
		close(held.ended)
		delete(c.held, attempt)
	}
}
