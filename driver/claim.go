package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/pause"
	"nomad-gpu-mem/internal/tellonce"
)

// claim takes the booked units in the table. Nomad sells the units of a task that it
// stops in the same plan, and so they may be held for as long as that task takes to
// end: the start waits for them, as it does for a table that is away, but not for
// longer than claim_timeout.
func (s *start) claim() error {
	if !s.order.hasGPU() {
		return nil
	}
	limit := s.services.settings.claimTimeout
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
		if s.releaseLeftBehind(ctx, err) {
			continue
		}
		if isNew, _ := told.NoteError(err); isNew {
			s.plugin.logger.Info("a task waits for its GPU memory", "task_id", s.task.ID, "error", err)
			s.plugin.announcer.tell(s.task, waitingFor(err, s.task.Namespace))
		}
		if time.Since(begun) >= limit || pause.For(ctx, s.plugin.pace.retry) != nil {
			return fmt.Errorf("the GPU memory booked for the task could not be claimed within %s (claim_timeout): %w",
				limit, forAuthor(err, s.task.Namespace))
		}
	}
}

// takeUnits claims the units, unless this node knows that another task still uses them, or
// that their GPU is unhealthy.
func (s *start) takeUnits(ctx context.Context) error {
	if err := s.services.keeper.checkHealth(ctx, s.attempt.GPUs, time.Now()); err != nil {
		return err
	}
	if err := s.services.keeper.unitsInUse(s.attempt); err != nil {
		return err
	}
	return s.services.table.Claim(ctx, ownerOf(s.task), s.attempt.inTable(), s.order.bookings)
}

// releaseLeftBehind looks whether anybody stands behind the claims that are in the
// way, and reports whether some are out of it now.
func (s *start) releaseLeftBehind(ctx context.Context, err error) bool {
	var held *allocator.HeldError
	if !errors.As(err, &held) {
		return false
	}
	released, err := s.services.keeper.reconcile(ctx, held.GPU, time.Now())
	if err != nil {
		s.plugin.logger.Warn("who holds the units in the way cannot be found out", "gpu", held.GPU, "error", err)
	}
	for _, claim := range released {
		s.plugin.announcer.tell(s.task, fmt.Sprintf("Released units %s that %s had left behind", claim.Units, claim.NameFor(s.task.Namespace)))
	}
	return len(released) > 0
}

// minClaimTime is what one try may take even if claim_timeout is 0.
const minClaimTime = 10 * time.Second

func worthWaiting(err error) bool {
	return errors.Is(err, errUnhealthy) || errors.Is(err, allocator.ErrHeld) || errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrConflict)
}

// waitingFor is what a start waits for, told to the author of a job in the namespace.
func waitingFor(err error, namespace string) string {
	switch {
	case errors.Is(err, errUnhealthy):
		return "Waiting for the GPU to recover: " + err.Error()
	case errors.Is(err, allocator.ErrHeld):
		return "Waiting for GPU memory that another task has not given back yet: " + forAuthor(err, namespace).Error()
	}
	return "Waiting for the allocation table: " + err.Error()
}

// markRunning writes the container into the claim. The task is running by now, and
// the claim is what protects it: if the table is away just then, the loop that
// asserts claims writes it later.
func (s *start) markRunning(container string) error {
	if !s.order.hasGPU() {
		return nil
	}
	err := s.services.table.Running(s.ctx, ownerOf(s.task), s.task.ID, container, gpusOf(s.order.bookings))
	if err == nil || !worthWaiting(err) || errors.Is(err, allocator.ErrInvalid) {
		return err // also if a claim is gone on one GPU and the table did not answer for another
	}
	s.plugin.logger.Warn("the claim does not name its container yet", "task_id", s.task.ID, "error", err)
	return nil
}

// assertLoop repeats the claims of the tasks that run. Nothing changes as long as
// the table has them; after it was wiped or restored from an old copy they are
// written again. A collision is shown and nothing is killed.
func (p *Plugin) assertLoop(s *services) {
	every(p.ctx, p.pace.assert, func() { p.assertAll(s) })
}

func (p *Plugin) assertAll(s *services) {
	for _, h := range p.tasks.all() {
		if h.running() && h.seen.Load() {
			p.assert(s, h)
		}
	}
}

// assert confirms the claim of a task that is seen to run, and tells if that is not
// possible.
func (p *Plugin) assert(s *services, h *handle) {
	if len(h.bookings) == 0 {
		return
	}
	err := h.confirmClaim(s.table)
	switch {
	case h.ctx.Err() != nil || !h.isNews(err):
	case err == nil:
		p.logger.Info("the claim of a running task is confirmed again", "task_id", h.task.ID)
	case errors.Is(err, allocator.ErrSuperseded):
		p.logger.Error("a newer start of a running task has its claim, so this container must end", "task_id", h.task.ID, "error", err)
	case errors.Is(err, allocator.ErrHeld):
		p.logger.Error("two tasks use the same GPU memory: the table gives the units of a running task to another", "task_id", h.task.ID, "error", err)
		p.announcer.tell(h.task, "The table gives this running task's GPU memory to another task; stop one of the two: "+
			forAuthor(err, h.task.Namespace).Error())
	default:
		p.logger.Warn("the claim of a running task could not be confirmed", "task_id", h.task.ID, "error", err)
	}
}

// isNews notes how the last try to confirm the claim went, and reports whether that is
// another way than the one before: what lasts is told once.
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
func (h *handle) confirmClaim(table Table) error {
	h.claimMu.Lock()
	defer h.claimMu.Unlock()
	if h.over {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, settleTimeout)
	defer cancel()
	return table.Assert(ctx, ownerOf(h.task), h.attempt().inTable(), h.container, h.bookings)
}
