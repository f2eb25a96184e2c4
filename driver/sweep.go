package driver

import (
	"context"
	"time"

	"nomad-gpu-mem/driver/docker"
)

// sweepLoop completes what was left over: releases that failed, and the attempts of
// tasks that went down with the machine.
func (p *Plugin) sweepLoop(s *services) {
	every(p.ctx, p.pace.sweep, func() { s.keeper.sweep(p.ctx, time.Now()) })
}

// danglingLoop removes this driver's containers that no task owns, and the networks of
// groups that are no more: Nomad forgot them, or died before it learned of them. Its first round waits until Nomad has had the
// time to recover its tasks.
func (p *Plugin) danglingLoop(s *services) {
	dangling := s.settings.GC.Dangling
	if !dangling.Enabled || !pause(p.ctx, max(s.settings.danglingEvery, s.settings.danglingGrace)) {
		return
	}
	every(p.ctx, s.settings.danglingEvery, func() {
		p.removeAllDangling(p.ctx, s, time.Now())
		p.removeForgotten(p.ctx, s, time.Now())
	})
}

func (p *Plugin) removeAllDangling(ctx context.Context, s *services, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, max(settleTimeout, s.settings.danglingEvery)) // there may be many
	defer cancel()
	containers, err := s.engine.List(ctx, map[string]string{labelAttempt: ""})
	if err != nil {
		p.logger.Warn("dangling containers cannot be looked for", "error", err)
		return
	}
	for _, c := range containers {
		if ours(c) && (c.Running || neverRan(c)) && now.Sub(c.CreatedAt) > s.settings.danglingGrace {
			p.removeDangling(ctx, s, c)
		}
	}
}

func (p *Plugin) removeDangling(ctx context.Context, s *services, c docker.Container) {
	attempt := c.Labels[labelAttempt]
	if !s.keeper.custody.try(attempt) {
		return // a task of ours
	}
	defer s.keeper.custody.giveUp(attempt)
	if s.settings.GC.Dangling.DryRun {
		p.logger.Info("a container that no task owns would be removed", "container", c.Name)
		return
	}
	p.logger.Warn("removing a container that no task owns", "container", c.Name, "alloc_id", c.Labels[labelAlloc])
	if err := s.engine.Remove(ctx, c.ID); err != nil {
		p.logger.Error("a container that no task owns cannot be removed", "container", c.Name, "error", err)
	}
}
