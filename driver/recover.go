package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// RecoverTask takes up a task that another process of this plugin started. Its
// container goes on as it is; its claim is confirmed in the background. A task that
// is known already is fine. An error makes Nomad destroy the task and start it anew.
func (p *Plugin) RecoverTask(from *drivers.TaskHandle) error {
	if from == nil || from.Config == nil {
		return fmt.Errorf("the task cannot be recovered: Nomad kept no handle of it")
	}
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
	bookings, err := state.bookings()
	if err != nil {
		return fmt.Errorf("the task cannot be recovered: %w", err)
	}
	found, err := p.findAgain(s, state)
	if err != nil {
		gone := attempt{ID: from.Config.ID, Owner: ownerOf(from.Config), GPUs: gpusOf(bookings), Begun: state.StartedAt}
		return fmt.Errorf("the task cannot be recovered: %w", errors.Join(err, s.keeper.bury(p.ctx, gone)))
	}
	h := newHandle(p.ctx, from.Config, bookings, found)
	h.network = state.DriverNetwork
	h.startedAt = state.StartedAt
	if err := s.keeper.begin(p.ctx, h.attempt()); err != nil {
		return err
	}
	s.images.use(h.image, h.task.ID)
	p.adopt(s, h)
	p.spawn(func() {
		if len(bookings) > 0 && found.Running {
			p.assert(s, h)
		}
	})
	return nil
}

func decodeState(from *drivers.TaskHandle) (state TaskState, err error) {
	if from.Version != handleVersion {
		return state, fmt.Errorf("the task cannot be recovered: its handle has version %d, this plugin reads %d", from.Version, handleVersion)
	}
	if err := from.GetDriverState(&state); err != nil {
		return state, fmt.Errorf("the task cannot be recovered: its handle cannot be read: %w", err)
	}
	return state, nil
}

// findAgain looks for the container. A daemon that stays away is no proof that it is
// gone: then the task is taken up unseen, and its end is observed later.
func (p *Plugin) findAgain(s *services, state TaskState) (docker.Container, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.pace.recovery)
	defer cancel()
	for {
		found, err := s.engine.Inspect(ctx, state.ContainerID)
		if err == nil || errors.Is(err, docker.ErrNotFound) {
			return found, err
		}
		if !pause(ctx, p.pace.retry) {
			p.logger.Warn("docker is away: a task is recovered unseen", "container", state.ContainerID, "error", err)
			return docker.Container{ID: state.ContainerID, TTY: state.TTY, Running: true}, nil
		}
	}
}

// adopt looks after a task from now on: its end and its output.
func (p *Plugin) adopt(s *services, h *handle) {
	p.tasks.put(h)
	p.spawn(func() { h.watch(s.engine) })
	p.spawn(func() { p.copyLogs(s, h) })
}
