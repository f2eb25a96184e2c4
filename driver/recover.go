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
	"nomad-gpu-mem/driver/statefile"
	"nomad-gpu-mem/internal/pause"
)

// RecoverTask takes up a task that another process of this plugin started, or Nomad's
// own driver of the name that this one has. Its container keeps running as it is; its claim is confirmed in the background.
// A task that is known already is fine. An error makes Nomad destroy the task and start it again.
//
// An agent that crashes leaves its calls running in the plugin, and the next agent repeats them: calls for the same task
// share one recovery.
func (p *Plugin) RecoverTask(from *drivers.TaskHandle) error {
	if from == nil || from.Config == nil {
		return fmt.Errorf("the task cannot be recovered: Nomad kept no handle of it")
	}
	called := time.Now()
	_, err, _ := p.recoveries.Do(from.Config.ID, func() (any, error) { return nil, p.recoverCalled(from, called) })
	if h, known := p.tasks.get(from.Config.ID); known {
		h.mentions.note(called)
	}
	return err
}

// recoverCalled is RecoverTask, called by Nomad at that time.
func (p *Plugin) recoverCalled(from *drivers.TaskHandle, called time.Time) error {
	if _, known := p.tasks.get(from.Config.ID); known {
		return nil
	}
	s, err := p.serving()
	if err != nil {
		return err
	}
	state, err := decodeState(from)
	if err != nil {
		return err
	}
	bookings, err := state.bookings(from.Config)
	if err != nil {
		return fmt.Errorf("the task cannot be recovered: %w", err)
	}
	gone := attempt.NewRecord(from.Config, bookings, state.begun(), state.Engine)
	if state.isBuiltin() {
		gone.Container = state.ContainerID
	}
	found, seen, err := s.findAgain(gone, state)
	if err != nil {
		err = fmt.Errorf("the task cannot be recovered: %w", errors.Join(err, s.reaper.FinishUnowned(p.ctx, gone)))
		p.announcer.tell(from.Config, err.Error())
		return err
	}
	h := newHandle(p.ctx, from.Config, bookings, state.Engine, found)
	h.begun = state.begun()
	h.network = state.DriverNetwork
	if state.isBuiltin() {
		h.takeOver(state)
	} else {
		h.startedAt = state.StartedAt
	}
	h.mentions.note(called)
	h.seen.Store(seen && found.Running)
	if err := s.reaper.Begin(p.ctx, h.attempt()); err != nil {
		return err
	}
	s.images.Use(h.image, h.task.ID)
	s.adopt(h)
	if h.seen.Load() {
		p.spawn(func() { s.assert(h) })
	}
	return nil
}

func decodeState(from *drivers.TaskHandle) (state TaskState, err error) {
	if from.Version > handleVersion {
		return state, fmt.Errorf("the task cannot be recovered: its handle has version %d, this plugin reads %d: %w", from.Version, handleVersion, statefile.ErrNewer)
	}
	if from.Version != handleVersion {
		return state, fmt.Errorf("the task cannot be recovered: its handle has version %d, this plugin reads %d", from.Version, handleVersion)
	}
	if err := from.GetDriverState(&state); err != nil {
		return state, fmt.Errorf("the task cannot be recovered: its handle cannot be read: %w", err)
	}
	return state, nil
}

// findAgain looks for the container. A daemon that stays unavailable does not prove
// that it is gone: then the task is recovered unseen, and its end is observed later. All recoveries
// together wait no longer than for one, since Nomad asks for one after the other.
func (s *services) findAgain(a attempt.Record, state TaskState) (found docker.Container, seen bool, err error) {
	if noted, ok, err := s.reaper.Journal.Read(a.ID); err == nil && ok && noted.Over {
		return found, false, fmt.Errorf("it has ended, which only remains to be completed")
	}
	ctx, cancel := context.WithDeadline(s.ctx, s.reaper.Since.Add(s.pace.recovery))
	defer cancel()
	for {
		found, err = s.glance(ctx, state.ContainerID)
		if err == nil || errors.Is(err, docker.ErrNotFound) {
			return found, err == nil, err
		}
		if pause.For(ctx, s.pace.retry) != nil {
			s.logger.Warn("Docker is unavailable: a task is recovered unseen", "container", state.ContainerID, "error", err)
			return docker.Container{ID: state.ContainerID, Image: state.Image, TTY: state.TTY, Running: true}, false, nil
		}
	}
}

// glance looks for a container once: until ctx ends, but for long enough to be
// answered by a daemon that is there.
func (s *services) glance(ctx context.Context, container string) (docker.Container, error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(s.ctx, max(time.Until(deadline), glanceTime))
	defer cancel()
	return s.engine.Inspect(ctx, container)
}

// glanceTime is what a daemon may take to tell of a container.
const glanceTime = time.Second

// adopt manages a task from now on: its end and its output.
func (s *services) adopt(h *handle) {
	s.tasks.put(h)
	s.spawn(func() { s.watch(h) })
	s.spawn(func() { s.copyLogs(h) })
}
