// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/attempt"
)

// task returns a task that this process manages, and notes that Nomad asked for it.
func (p *process) task(id string) (*handle, bool) {
	h, ok := p.tasks.get(id)
	if ok {
		h.mentions.note(time.Now())
	}
	return h, ok
}

// endForgotten ends the tasks that Nomad has forgotten. Its agent crashed while it started
// them, so it never kept a handle; the next agent recovers the tasks of which it has one,
// and never mentions the others.
func (s *services) endForgotten(ctx context.Context, now time.Time) {
	for _, h := range s.tasks.all() {
		if ctx.Err() != nil {
			return
		}
		if s.forgotten(h, s.settings.DanglingGrace, now) {
			s.endForgottenTask(ctx, h)
		}
	}
}

func (s *services) endForgottenTask(ctx context.Context, h *handle) {
	if s.settings.GC.Dangling.DryRun {
		s.logger.Info("a task that Nomad has forgotten would be ended", "task_id", h.task.ID, "container", h.container)
		return
	}
	s.logger.Warn("ending a task that Nomad has forgotten", "task_id", h.task.ID, "container", h.container)
	if err := s.finish(ctx, h); err != nil {
		s.logger.Warn("the end of a task that Nomad has forgotten is not complete; the plugin retries it", "task_id", h.task.ID, "error", err)
	}
}

// forgotten reports whether the agent that is connected now had the time to recover the
// task, and did not, or has removed the task's allocation since. A task for whose end an agent waits is known to it.
func (s *services) forgotten(h *handle, grace time.Duration, now time.Time) bool {
	connected, since := s.agent.state()
	if !connected || now.Sub(since) <= grace {
		return false
	}
	return h.mentions.noneSince(since) || h.mentions.noneSince(now.Add(-grace)) && isCollected(h.task)
}

// isCollected reports whether Nomad has removed the directory of a task's allocation, which it does after the end of all
// of its tasks. It may believe that one has ended whose end it could not ask for, as while the plugin recovered it.
func isCollected(task *drivers.TaskConfig) bool {
	_, err := os.Lstat(task.AllocDir)
	return task.AllocDir != "" && errors.Is(err, fs.ErrNotExist)
}

// finish ends a task and releases all that it holds. What does not succeed at once is
// done by the sweeper. Of several calls for one task, the first does it all.
func (s *services) finish(ctx context.Context, h *handle) error {
	if !s.tasks.remove(h) {
		return nil
	}
	h.close()
	defer func() { s.images.Drop(h.image, h.task.ID, time.Now()) }()
	return s.reaper.Finish(ctx, h.attempt())
}

// finishEarlier ends the tasks in this process that are earlier starts of a task.
func (s *services) finishEarlier(ctx context.Context, a attempt.Record) error {
	for _, h := range s.tasks.all() {
		if h.task.ID == a.ID || !attempt.OwnerOf(h.task).Is(a.Owner) {
			continue
		}
		s.logger.Warn("ending an earlier start of a task, since Nomad starts it again", "task_id", h.task.ID)
		if err := s.finish(ctx, h); err != nil {
			s.logger.Warn("the end of an earlier start is not complete; the plugin retries it", "task_id", h.task.ID, "error", err)
		}
	}
	return ctx.Err()
}
