// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
)

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
	if err := p.finish(p.ctx, s, h); err != nil {
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
