// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/internal/pause"
)

// watch waits for the container's end. An unavailable daemon is not an end, and
// neither is another one in its place; a plugin that stops says nothing, so that Nomad
// asks the next one.
func (s *services) watch(h *handle) {
	if !h.seen.Load() {
		s.see(h)
	}
	told := false
	for {
		ended, err := s.engine.Wait(h.ctx, h.container)
		if errors.Is(err, docker.ErrNotFound) {
			if other := attempt.SameEngine(h.ctx, s.engine, h.engine); other != nil {
				if errors.Is(other, attempt.ErrElsewhere) && !told {
					s.announcer.tell(h.task, "Nothing is known of the task until its Docker engine is back; its GPU memory stays claimed: "+other.Error())
					told = true
				}
				if pause.For(h.ctx, s.pace.retry) == nil {
					continue
				}
			}
		}
		if h.ctx.Err() != nil && err != nil {
			return
		}
		h.exit = exitOf(ended, err)
		close(h.exited)
		return
	}
}

// see waits until the daemon says something of a container that was taken up unseen.
// Only then may its claim be written again: the task may be long dead, and its units
// another's.
func (s *services) see(h *handle) {
	for {
		found, err := s.engine.Inspect(h.ctx, h.container)
		switch {
		case err == nil && found.Running:
			h.seen.Store(true)
			s.assert(h)
			return
		case err == nil || errors.Is(err, docker.ErrNotFound):
			return
		}
		if pause.For(h.ctx, s.pace.retry) != nil {
			return
		}
	}
}

func exitOf(ended docker.Exit, err error) exit {
	switch {
	case err == nil:
		return exit{exitResult(ended), ended.FinishedAt}
	case errors.Is(err, docker.ErrNotFound):
		err = fmt.Errorf("the container was removed from Docker by someone else")
	default:
		err = fmt.Errorf("the container's end cannot be observed: %w", err)
	}
	return exit{&drivers.ExitResult{ExitCode: 1, Err: err}, time.Now()}
}
