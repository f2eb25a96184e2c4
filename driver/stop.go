// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
)

// WaitTask delivers the task's end, exactly once per call, and never closes the
// channel without it: Nomad 1.6 does not survive that.
func (p *Plugin) WaitTask(ctx context.Context, id string) (<-chan *drivers.ExitResult, error) {
	h, ok := p.task(id)
	if !ok {
		return nil, drivers.ErrTaskNotFound
	}
	ch := make(chan *drivers.ExitResult, 1)
	waited, connected := h.mentions.wait(time.Now), p.agent.open(time.Now)
	go func() { // ends with the call's context
		defer close(ch)
		defer connected()
		defer waited()
		select {
		case <-h.exited:
			ch <- h.exit.result.Copy()
		case <-ctx.Done():
			ch <- &drivers.ExitResult{Err: ctx.Err()}
		}
	}()
	return ch, nil
}

// StopTask ends the task's process: with the signal, or else the one that the image
// names, and after the timeout by force. It gives nothing back; DestroyTask does. An
// unknown task is stopped already: Nomad cannot tell that answer from a failure, and
// would try for minutes. A container that outlives the force too keeps its claim; the
// engine decides when that is so, for it knows what may take long. Its GPUs are not
// offered any more then: they are the likely reason.
func (p *Plugin) StopTask(id string, timeout time.Duration, signal string) error {
	h, ok := p.task(id)
	if !ok || !h.running() {
		return nil
	}
	s, err := p.serving()
	if err != nil {
		return err
	}
	_, err = askFor(p.ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, attempt.SameEngine(ctx, s.engine, h.engine) // another would say that it has stopped
	})
	if err == nil {
		err = s.engine.Stop(p.ctx, h.container, signal, timeout)
	}
	if errors.Is(err, docker.ErrStuck) {
		err = errors.Join(err, s.reaper.MarkStuck(p.ctx, h.attempt()))
	}
	if err != nil {
		return fmt.Errorf("container of task %q did not stop; its GPU memory stays claimed: %w", h.task.Name, err)
	}
	return nil
}

// SignalTask sends a signal to the task's process.
func (p *Plugin) SignalTask(id, signal string) error {
	h, ok := p.task(id)
	if !ok {
		return drivers.ErrTaskNotFound
	}
	s, err := p.serving()
	if err != nil {
		return err
	}
	if signal == "" { // which Docker takes for SIGKILL
		return fmt.Errorf("no signal to send to task %q: name one, such as SIGHUP", h.task.Name)
	}
	ctx, cancel := context.WithTimeout(p.ctx, attempt.CleanupTimeout)
	defer cancel()
	return s.engine.Signal(ctx, h.container, signal)
}

// DestroyTask removes the task's container and releases its claim, in that order:
// GPU memory is free only when nothing of the task can use it any more. Nomad ignores
// the result, so what does not succeed now is retried in the background.
func (p *Plugin) DestroyTask(id string, force bool) error {
	h, ok := p.task(id)
	if !ok {
		return drivers.ErrTaskNotFound
	}
	if h.running() && !force {
		return fmt.Errorf("task %q is still running: stop it first", h.task.Name)
	}
	s, err := p.serving()
	if err != nil {
		return err
	}
	h.drain()
	if err := s.finish(p.ctx, h); err != nil {
		p.announcer.tell(h.task, "The task's end is not complete, which will be tried again: "+err.Error())
		return err
	}
	return nil
}

// drain waits a little for the last output of a task that has ended.
func (h *handle) drain() {
	if h.running() {
		return
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-h.logged:
	case <-timer.C:
	case <-h.ctx.Done():
	}
}
