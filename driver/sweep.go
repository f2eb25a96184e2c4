// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/pause"
)

// sweepLoop completes what was left over: releases that failed, the attempts of tasks
// that went down with the machine, and the tasks that Nomad has forgotten.
func (s *services) sweepLoop() {
	every(s.ctx, s.pace.sweep, func() {
		s.reaper.Sweep(s.ctx, time.Now())
		if s.settings.GC.Dangling.Enabled {
			s.endForgotten(s.ctx, time.Now())
		}
	})
}

// danglingLoop removes this driver's containers that no task owns, and the networks of
// groups that are no more: Nomad forgot them, or died before it learned of them. Its first round waits until Nomad has had the
// time to recover its tasks.
func (s *services) danglingLoop() {
	dangling := s.settings.GC.Dangling
	if !dangling.Enabled || pause.For(s.ctx, max(s.settings.DanglingPeriod, s.settings.DanglingGrace)) != nil {
		return
	}
	every(s.ctx, s.settings.DanglingPeriod, func() {
		s.removeAllDangling(s.ctx, time.Now())
		s.removeForgottenSandboxes(s.ctx, time.Now())
	})
}

func (s *services) removeAllDangling(ctx context.Context, now time.Time) {
	if _, sole := s.reaper.Instance.Sole(now); !sole {
		return // another process may manage them
	}
	ctx, cancel := context.WithTimeout(ctx, max(attempt.CleanupTimeout, s.settings.DanglingPeriod)) // there may be many
	defer cancel()
	containers, err := s.danglingCandidates(ctx)
	if err != nil {
		s.logger.Warn("cannot list dangling containers", "error", err)
		return
	}
	for _, c := range containers {
		if now.Sub(c.CreatedAt) > s.settings.DanglingGrace && (attempt.MayRun(c) || s.reaper.IsResidue(c, now)) && !s.reaper.IsElsewhere(c) {
			s.removeDangling(ctx, c)
		}
	}
}

// danglingCandidates are the containers of tasks: this driver's, and those of Nomad's own
// where this driver has its name. Nomad then loads no other driver that would remove them.
func (s *services) danglingCandidates(ctx context.Context) ([]docker.Container, error) {
	candidates, err := s.engine.List(ctx, map[string]string{label.Attempt: ""})
	candidates = slices.DeleteFunc(candidates, func(c docker.Container) bool { return !label.Ours(c) })
	if err != nil || s.name != BuiltinName {
		return candidates, err
	}
	others, err := s.engine.List(ctx, map[string]string{label.BuiltinAlloc: ""})
	if err != nil {
		return candidates, err
	}
	taken, err := s.takenOver()
	for _, c := range others {
		if isBuiltinTask(c) && !label.Ours(c) && !taken[c.ID] {
			candidates = append(candidates, c)
		}
	}
	return candidates, err
}

// takenOver returns the IDs of the containers that have no label of this driver and
// belong to a task or to a record.
func (s *services) takenOver() (map[string]bool, error) {
	taken := map[string]bool{}
	for _, h := range s.tasks.all() {
		taken[h.container] = true
	}
	records, err := s.reaper.Journal.All()
	for _, a := range records {
		taken[a.Container] = true
	}
	return taken, err
}

func (s *services) removeDangling(ctx context.Context, c docker.Container) {
	attempt := cmp.Or(c.Labels[label.Attempt], c.ID) // a container of Nomad's own driver has no such label
	if !s.reaper.Locks.LockBriefly(ctx, attempt) {
		return // a task of ours
	}
	defer s.reaper.Locks.Unlock(attempt)
	if s.settings.GC.Dangling.DryRun {
		s.logger.Info("a container that no task owns would be removed", "container", c.Name)
		return
	}
	s.logger.Warn("removing a container that no task owns", "container", c.Name, "alloc_id", cmp.Or(c.Labels[label.Alloc], c.Labels[label.BuiltinAlloc]))
	if err := s.engine.Remove(ctx, c.ID); err != nil {
		s.logger.Error("a container that no task owns cannot be removed", "container", c.Name, "error", err)
	}
}

// imageLoop removes unused images.
func (s *services) imageLoop() {
	if s.settings.GC.Image {
		every(s.ctx, s.pace.sweep, func() { s.images.Sweep(s.ctx, time.Now()) })
	}
}
