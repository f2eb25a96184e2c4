// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
)

// assertLoop repeats the claims of the tasks that run. Nothing changes as long as
// the table has them; after it was wiped or restored from an old copy they are
// written again. A collision is shown and nothing is killed.
func (s *services) assertLoop() {
	every(s.ctx, s.pace.assert, func() { s.assertAll() })
}

func (s *services) assertAll() {
	for _, h := range s.tasks.all() {
		if h.running() && h.seen.Load() {
			s.assert(h)
		}
	}
}

// assert confirms the claim of a task that is seen to run, and tells if that is not
// possible. A claim in the way whose task is gone, as one that an old copy of the table
// brought back, is released first.
func (s *services) assert(h *handle) {
	if len(h.bookings) == 0 {
		return
	}
	young := s.reaper.IsYoung(time.Now())
	err := h.confirmClaim(s.table)
	if errors.Is(err, allocator.ErrHeld) && s.releaseOrphans(h.ctx, h.task, err) {
		err = h.confirmClaim(s.table)
	}
	advice := ""
	if errors.Is(err, allocator.ErrHeld) {
		if advice = s.reaper.AdviceOn(h.ctx, err, young); advice == "" {
			return
		}
	}
	switch {
	case h.ctx.Err() != nil || !h.isNews(err):
	case err == nil:
		s.logger.Info("the claim of a running task is confirmed again", "task_id", h.task.ID)
	case errors.Is(err, allocator.ErrSuperseded):
		s.logger.Error("a newer start of a running task has its claim, so this container must end", "task_id", h.task.ID, "error", err)
	case errors.Is(err, allocator.ErrHeld):
		s.logger.Error("the table gives the units of a running task to another; "+advice, "task_id", h.task.ID, "error", err)
		s.announcer.tell(h.task, "The table gives this running task's GPU memory to another task; "+advice+": "+
			forAuthor(err, h.task.Namespace).Error())
	default:
		s.logger.Warn("the claim of a running task could not be confirmed", "task_id", h.task.ID, "error", err)
	}
}

// isNews notes how the last try to confirm the claim went, and reports whether that is
// another way than the one before: what lasts is reported once.
func (h *handle) isNews(err error) bool {
	h.claimMu.Lock()
	defer h.claimMu.Unlock()
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	news := trouble != h.trouble
	h.trouble = trouble
	return news
}

// confirmClaim writes the claim as it should be, on each GPU by itself, unless the task is being destroyed:
// a claim written after its release would never end.
func (h *handle) confirmClaim(table taskTable) error {
	h.claimMu.Lock()
	defer h.claimMu.Unlock()
	if h.over {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, attempt.CleanupTimeout)
	defer cancel()
	return table.Assert(ctx, attempt.OwnerOf(h.task), h.attempt().InTable(), h.container, h.bookings)
}
