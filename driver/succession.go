// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"time"

	"nomad-gpu-mem/internal/tellonce"
)

// A plugin process outlives an agent that crashes, and the next agent connects to it. An
// agent that has lost the address of the process starts another one. Then the older
// process must end: two that work with one state_dir would take each other's tasks for
// orphans. Containers and claims stay; the process that an agent uses recovers them.

// Superseded is closed when this process has to end: another one serves the node, or no
// agent has been connected for long.
func (p *Plugin) Superseded() <-chan struct{} { return p.superseded }

// successionLoop looks whether this process has to end.
func (s *services) successionLoop() {
	var told tellonce.Last
	every(s.ctx, s.pace.sweep, func() {
		over, reason := s.succession(time.Now())
		if isNew, _ := told.Note(reason); isNew {
			s.logger.Error(reason)
		}
		if over {
			s.endOnce.Do(func() { close(s.superseded) })
		}
	})
}

// succession reports whether this process has to end, and what the operator has to know.
func (s *services) succession(now time.Time) (over bool, reason string) {
	connected, since := s.agent.state()
	switch {
	case s.reaper.Instance.Superseded() && !connected:
		return true, "another process of this plugin has taken over state_dir, and no agent is connected to this one: this process ends"
	case s.reaper.Instance.Superseded():
		return false, fmt.Sprintf("another process of this plugin uses state_dir %s, and an agent is connected to this one: "+
			"give each agent on this machine a state_dir of its own; until then, containers without a task are left alone", s.settings.StateDir)
	case !connected && now.Sub(since) > s.pace.lonely && s.starts.count() == 0:
		return true, fmt.Sprintf("no agent has been connected for %s: this process ends; tasks and claims stay", s.pace.lonely)
	}
	return false, ""
}
