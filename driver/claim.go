// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/internal/pause"
	"nomad-gpu-mem/internal/tellonce"
)

// claim takes the booked units in the table. Nomad sells the units of a task that it
// stops in the same plan, and so they may be held for as long as that task takes to
// end: the start waits for them, as it does for an unavailable table, but not for
// longer than claim_timeout.
func (s *start) claim() error {
	if !s.input.HasGPU() {
		return nil
	}
	limit := s.services.settings.ClaimWait
	ctx, cancel := context.WithTimeout(s.ctx, max(limit, minClaimTime))
	defer cancel()
	begun := time.Now()
	var told tellonce.Last
	var last error // that the start waited for
	for {
		err := s.takeUnits(ctx)
		if err == nil {
			return nil
		}
		if last != nil && s.ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = last // the time is up, which says nothing of why
		}
		if last = err; !worthWaiting(err) {
			return fmt.Errorf("the GPU memory booked for the task cannot be claimed: %w", forAuthor(err, s.task.Namespace))
		}
		if s.services.releaseOrphans(ctx, s.task, err) {
			continue
		}
		if isNew, _ := told.NoteError(err); isNew {
			s.services.logger.Info("a task waits for its GPU memory", "task_id", s.task.ID, "error", err)
			s.services.announcer.tell(s.task, waitingFor(err, s.task.Namespace))
		}
		if time.Since(begun) >= limit || pause.For(ctx, s.services.pace.retry) != nil {
			return fmt.Errorf("the GPU memory booked for the task could not be claimed within %s (claim_timeout): %w",
				limit, forAuthor(err, s.task.Namespace))
		}
	}
}

// takeUnits claims the units, unless this node knows that another task still uses them, or
// that their GPU is unhealthy.
func (s *start) takeUnits(ctx context.Context) error {
	if err := s.services.checkHealth(ctx, s.attempt.GPUs, time.Now()); err != nil {
		return err
	}
	if err := s.services.reaper.UnitsInUse(ctx, s.attempt); err != nil {
		return err
	}
	return s.services.table.Claim(ctx, attempt.OwnerOf(s.task), s.attempt.InTable(), s.input.Bookings)
}

// releaseOrphans releases the orphan claims on a task's units: their tasks are proven gone. It
// reports whether there were any.
func (s *services) releaseOrphans(ctx context.Context, task *drivers.TaskConfig, err error) bool {
	any := false
	for _, held := range allocator.HeldErrors(err) {
		released, err := s.reaper.Reconcile(ctx, held.GPU, time.Now())
		if err != nil {
			s.logger.Warn("cannot find out whether the tasks that hold a GPU's units are there", "gpu", held.GPU, "error", err)
		}
		for _, claim := range released {
			s.announcer.tell(task, fmt.Sprintf("Released units %s that %s had left behind", claim.Units, claim.NameFor(task.Namespace)))
		}
		any = any || len(released) > 0
	}
	return any
}

// minClaimTime is what one try may take even if claim_timeout is 0.
const minClaimTime = 10 * time.Second

func worthWaiting(err error) bool {
	return errors.Is(err, errUnhealthy) || errors.Is(err, allocator.ErrHeld) || errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrConflict)
}

// waitingFor is what a start waits for, in words for the author of a job in the namespace.
func waitingFor(err error, namespace string) string {
	switch {
	case errors.Is(err, errUnhealthy):
		return "Waiting for the GPU to recover: " + err.Error()
	case errors.Is(err, allocator.ErrHeld):
		return "Waiting for GPU memory that another task has not released yet: " + forAuthor(err, namespace).Error()
	}
	return "Waiting for the allocation table: " + err.Error()
}

// markRunning writes the container into the claim. The task is running by now, and
// the claim is what protects it: if the table is unavailable just then, the loop that
// asserts claims writes it later.
func (s *start) markRunning(container string) error {
	if !s.input.HasGPU() {
		return nil
	}
	err := s.services.table.Running(s.ctx, attempt.OwnerOf(s.task), s.task.ID, container, allocator.GPUsOf(s.input.Bookings))
	if err == nil || !worthWaiting(err) || errors.Is(err, allocator.ErrInvalid) {
		return err // also if a claim is gone on one GPU and the table did not answer for another
	}
	s.services.logger.Warn("the claim does not name its container yet", "task_id", s.task.ID, "error", err)
	return nil
}
