package driver

import (
	"context"
	"errors"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
)

// reconcileLoop compares the claims on this node's GPUs with what runs here: those
// that nobody stands behind are released, those of running tasks are confirmed by
// assertLoop. A GPU is known to be this node's once a task was booked on it.
func (p *Plugin) reconcileLoop(s *services) {
	s.keeper.tenancy.sole(time.Now()) // from now on it counts
	every(p.ctx, p.pace.assert, func() {
		for _, gpu := range s.keeper.own.all() {
			if _, err := s.keeper.reconcile(p.ctx, gpu, time.Now()); err != nil {
				p.logger.Warn("the claims on a GPU cannot be compared with what runs here", "gpu", gpu, "error", err)
			}
		}
	})
}

// reconcile releases the claims on a GPU of this node whose tasks are proven gone, and
// returns them. Such claims come from a table that was restored from an old copy, and
// from a node that lost its state_dir. What the journal knows, or anybody looks after,
// has an end of its own; what people hold outside Nomad is theirs.
func (k *keeper) reconcile(ctx context.Context, gpu allocator.GPUID, now time.Time) (released []allocator.Claim, err error) {
	if since, alone := k.tenancy.sole(now); !alone || now.Sub(since) < residueAge {
		return nil, nil // an earlier process may be about to create a container
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	found, err := k.table.Inspect(ctx, gpu)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, claim := range found.Claims() {
		gone, err := k.release(ctx, gpu, claim)
		if gone {
			released = append(released, claim)
		}
		failed = append(failed, err)
	}
	return released, errors.Join(failed...)
}

// release gives back a claim that nobody stands behind, and reports whether it did.
func (k *keeper) release(ctx context.Context, gpu allocator.GPUID, claim allocator.Claim) (bool, error) {
	if claim.State != allocator.Claimed && claim.State != allocator.Running {
		return false, nil
	}
	if !k.custody.try(claim.Attempt) {
		return false, nil
	}
	defer k.custody.giveUp(claim.Attempt)
	if _, known, err := k.journal.read(claim.Attempt); known || err != nil {
		return false, err
	}
	containers, err := k.engine.List(ctx, map[string]string{labelAttempt: claim.Attempt})
	if err != nil || slices.ContainsFunc(containers, ours) {
		return false, err
	}
	if err := k.table.Release(ctx, claim.Owner, claim.Attempt, []allocator.GPUID{gpu}); err != nil {
		return false, err
	}
	k.logger.Warn("released a claim that was left behind: no container, no record and no task of this node stands behind it",
		"task", claim.Owner.String(), "gpu", gpu, "units", claim.Units.String())
	return true, nil
}
