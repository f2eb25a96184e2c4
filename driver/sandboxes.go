// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"sync"
	"time"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/netns"
)

// sandboxIdle is how long a group's network must have been deserted to be taken for
// forgotten. A group is without any process before its first task, and while its tasks
// wait to be restarted: by default half an hour at most.
const sandboxIdle = time.Hour

// sandboxes knows since when pause containers are deserted. Nomad asks only once to
// remove one, and may do so while there is no plugin to hear it.
type sandboxes struct {
	proc netns.Procfs

	mu    sync.Mutex
	since map[string]time.Time // by allocation
}

func newSandboxes() *sandboxes { return &sandboxes{proc: "/proc", since: map[string]time.Time{}} }

// sandboxLock is the name of the lock of a group's network.
func sandboxLock(alloc string) string { return "sandbox/" + alloc }

// touch says that Nomad wants the group's network.
func (s *sandboxes) touch(alloc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, alloc)
}

// idle notes whether a group's network is deserted now, and reports whether it has been
// so for long enough.
func (s *sandboxes) idle(alloc string, deserted bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !deserted {
		delete(s.since, alloc)
		return false
	}
	since, known := s.since[alloc]
	if !known {
		s.since[alloc] = now
	}
	return known && now.Sub(since) >= sandboxIdle
}

// removeForgottenSandboxes removes the pause containers of groups that Nomad has forgotten.
func (s *services) removeForgottenSandboxes(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, attempt.CleanupTimeout)
	defer cancel()
	found, err := s.engine.List(ctx, map[string]string{label.Sandbox: ""})
	if err != nil {
		s.logger.Warn("cannot list forgotten group networks", "error", err)
		return
	}
	used, err := s.reaper.Allocs()
	if err != nil {
		s.logger.Warn("cannot distinguish forgotten group networks from others", "error", err)
		return
	}
	for _, c := range found {
		alloc := c.Labels[label.Sandbox]
		if c.Name == label.SandboxName(alloc) && !used[alloc] && now.Sub(c.CreatedAt) > s.settings.DanglingGrace {
			s.removeIfForgotten(ctx, c, now)
		}
	}
}

func (s *services) removeIfForgotten(ctx context.Context, c docker.Container, now time.Time) {
	alloc := c.Labels[label.Sandbox]
	if !s.reaper.Locks.LockBriefly(ctx, sandboxLock(alloc)) {
		return // Nomad is asking for it
	}
	defer s.reaper.Locks.Unlock(sandboxLock(alloc))
	forgotten, err := s.isForgotten(ctx, c, now)
	switch {
	case err != nil:
		s.logger.Warn("cannot inspect a group's network", "container", c.Name, "error", err)
	case !forgotten:
	case s.settings.GC.Dangling.DryRun:
		s.logger.Info("the network of a group that Nomad has forgotten would be removed", "container", c.Name)
	default:
		s.logger.Warn("removing the network of a group that Nomad has forgotten", "container", c.Name)
		if err := s.engine.RemoveSandbox(ctx, c.ID); err != nil {
			s.logger.Error("a forgotten group network cannot be removed", "container", c.Name, "error", err)
		}
	}
}

// isForgotten reports whether a pause container serves no group any more. One that has
// ended serves none: its namespace is gone, and Nomad gets another.
func (s *services) isForgotten(ctx context.Context, c docker.Container, now time.Time) (bool, error) {
	if !c.Running {
		return true, nil
	}
	found, err := s.engine.Inspect(ctx, c.ID)
	if err != nil {
		return false, err
	}
	deserted, err := s.sandboxes.proc.Deserted(found.Pid)
	if err != nil {
		return false, err
	}
	return s.sandboxes.idle(c.Labels[label.Sandbox], deserted, now), nil
}
