// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// brokenDaemon is an engine that all processes of a history share, and what is wrong with
// it just now.
type brokenDaemon struct {
	*fakeEngine

	mu       sync.Mutex
	hanging  chan struct{}  // closed when the daemon answers again; nil: it answers
	lost     int            // how many of the next changes are made without an answer
	failing  map[string]int // how many of the next calls of a method fail
	units    map[string][]allocator.Booking
	breaches []string
}

func newBrokenDaemon() *brokenDaemon {
	return &brokenDaemon{fakeEngine: newFakeEngine(), failing: map[string]int{}, units: map[string][]allocator.Booking{}}
}

// hang stops all answers until the returned function is called.
func (d *brokenDaemon) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hanging == nil {
		d.hanging = make(chan struct{})
	}
}

// mend takes all faults back.
func (d *brokenDaemon) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hanging != nil {
		close(d.hanging)
		d.hanging = nil
	}
	clear(d.failing)
	d.lost = 0
}

func (d *brokenDaemon) failNext(method string, calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[method] = calls
}

func (d *brokenDaemon) loseAnswers(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = calls
}

// note remembers what was booked for an attempt.
func (d *brokenDaemon) note(attempt string, bookings []allocator.Booking) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.units[attempt] = bookings
}

// look notes a breach if two containers that run hold one unit.
func (d *brokenDaemon) look() {
	running := d.running()
	d.mu.Lock()
	defer d.mu.Unlock()
	holders := map[string]string{}
	for _, c := range running {
		attempt := c.Labels[label.Attempt]
		for _, b := range d.units[attempt] {
			for _, unit := range b.Units {
				place := fmt.Sprintf("%s unit %d", b.GPU, unit)
				if other, taken := holders[place]; taken {
					d.breaches = append(d.breaches, fmt.Sprintf("%s is used by containers of %s and %s", place, other, attempt))
				}
				holders[place] = attempt
			}
		}
	}
}

func (d *brokenDaemon) breached() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.breaches...)
}

// daemonTimeout is how long a call waits for a daemon that hangs.
const daemonTimeout = 30 * time.Millisecond

// enter waits while the daemon hangs, and returns the failure of this call, if any.
func (d *brokenDaemon) enter(ctx context.Context, method string) error {
	d.mu.Lock()
	hanging := d.hanging
	fails := d.failing[method] > 0
	if fails {
		d.failing[method]--
	}
	d.mu.Unlock()
	if hanging != nil {
		timer := time.NewTimer(daemonTimeout)
		defer timer.Stop()
		select {
		case <-hanging:
		case <-timer.C:
			return fmt.Errorf("%s: %w: no answer", method, docker.ErrUnavailable)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case fails && method == "Remove":
		return docker.ErrStuck
	case fails:
		return fmt.Errorf("%s: %w", method, docker.ErrUnavailable)
	}
	return ctx.Err()
}

// answer loses the answer of a change that was made.
func (d *brokenDaemon) answer(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.lost > 0 {
		d.lost--
		return fmt.Errorf("%w: the answer was lost", docker.ErrUnavailable)
	}
	return err
}

// daemonClient is how one process of the plugin speaks to the daemon. A process that was
// killed does nothing any more.
type daemonClient struct {
	*brokenDaemon
	alive context.Context
}

func (c *daemonClient) call(ctx context.Context, method string, do func() error) error {
	if c.alive.Err() != nil {
		return docker.ErrUnavailable
	}
	if err := c.enter(ctx, method); err != nil {
		return err
	}
	if c.alive.Err() != nil {
		return docker.ErrUnavailable
	}
	err := do()
	c.look()
	return err
}

func (c *daemonClient) ID(ctx context.Context) (id string, err error) {
	err = c.call(ctx, "ID", func() (err error) { id, err = c.fakeEngine.ID(ctx); return err })
	return id, err
}

func (c *daemonClient) Info(ctx context.Context) (info docker.Info, err error) {
	err = c.call(ctx, "Info", func() (err error) { info, err = c.fakeEngine.Info(ctx); return err })
	return info, err
}

func (c *daemonClient) Create(ctx context.Context, spec docker.Spec) (id string, err error) {
	err = c.call(ctx, "Create", func() (err error) { id, err = c.fakeEngine.Create(ctx, spec); return c.answer(err) })
	return id, err
}

func (c *daemonClient) Start(ctx context.Context, id string) error {
	return c.call(ctx, "Start", func() error { return c.answer(c.fakeEngine.Start(ctx, id)) })
}

func (c *daemonClient) Stop(ctx context.Context, id, signal string, timeout time.Duration) error {
	return c.call(ctx, "Stop", func() error { return c.answer(c.fakeEngine.Stop(ctx, id, signal, timeout)) })
}

func (c *daemonClient) Remove(ctx context.Context, id string) error {
	return c.call(ctx, "Remove", func() error { return c.answer(c.fakeEngine.Remove(ctx, id)) })
}

func (c *daemonClient) Inspect(ctx context.Context, id string) (found docker.Container, err error) {
	err = c.call(ctx, "Inspect", func() (err error) { found, err = c.fakeEngine.Inspect(ctx, id); return err })
	return found, err
}

func (c *daemonClient) List(ctx context.Context, labels map[string]string) (found []docker.Container, err error) {
	err = c.call(ctx, "List", func() (err error) { found, err = c.fakeEngine.List(ctx, labels); return err })
	return found, err
}

func (c *daemonClient) Wait(ctx context.Context, id string) (docker.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.alive, cancel)()
	return c.fakeEngine.Wait(ctx, id)
}

var _ Engine = (*daemonClient)(nil)
