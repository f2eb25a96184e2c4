// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
)

// reconcileLoop compares what the table says of this node's GPUs with what runs here, and
// with what the device plugin sees on them. Orphaned claims are
// released, those of running tasks are confirmed by assertLoop, the rest is reported.
func (s *services) reconcileLoop() {
	s.reaper.Instance.Sole(time.Now()) // from now on it counts
	var bulletin attempt.RemarkLog
	every(s.ctx, s.pace.assert, func() { s.reconcileRound(&bulletin) })
}

func (s *services) reconcileRound(bulletin *attempt.RemarkLog) {
	round, released := s.reaper.Compare(s.ctx, time.Now())
	if released {
		s.assertAll() // what was released may have had the units of a running task
	}
	news, over := bulletin.Update(append(round, toTasks(round, s.tasks.all())...))
	if s.ctx.Err() != nil {
		return
	}
	for _, r := range news {
		s.tell(r)
	}
	for _, r := range over {
		if r.Task == nil {
			s.logger.Info("no longer so", "gpu", r.GPU, "was", r.Text)
		}
	}
}

// tell tells the operator, or the task that a remark is for.
func (s *services) tell(r attempt.Remark) {
	if r.Task != nil {
		s.announcer.tell(r.Task, "GPU "+string(r.GPU)+": "+r.Text)
		return
	}
	s.logger.Warn(r.Text, "gpu", r.GPU)
}

// toTasks are the remarks once more, for each running task that should know.
func toTasks(round []attempt.Remark, tasks []*handle) (all []attempt.Remark) {
	for _, r := range round {
		for _, h := range tasks {
			if r.TextFor != nil && h.running() && slices.Contains(allocator.GPUsOf(h.bookings), r.GPU) {
				again := r
				again.About, again.Task, again.Text = r.About+" for "+h.task.ID, h.task, r.TextFor(h.task.Namespace)
				all = append(all, again)
			}
		}
	}
	return all
}
