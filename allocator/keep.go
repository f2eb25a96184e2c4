// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"time"
)

// Keep confirms held units that are still in use outside Nomad. It writes the claim again if
// it is missing, as after a restore of the table from an old copy, and renews a ttl of which
// half is over. It reports whether the claim was missing. If others hold the units by now,
// the error is a *HeldError, and nothing is written.
func (t *Table) Keep(ctx context.Context, owner Owner, ttl time.Duration, slice Booking) (restored bool, err error) {
	if ttl < 0 {
		return false, fmt.Errorf("hold for %s: %w", ttl, ErrInvalid)
	}
	now := t.now()
	err = t.change(ctx, []GPUID{slice.GPU}, func(_ GPUID, l *Ledger) (changed bool, err error) {
		changed, restored, err = l.keep(owner, ttl, slice, now)
		return changed, err
	})
	return restored && err == nil, err
}

func (l *Ledger) keep(owner Owner, ttl time.Duration, slice Booking, now time.Time) (changed, restored bool, err error) {
	if err := owner.validate(); err != nil {
		return false, false, err
	}
	if err := slice.Validate(); err != nil {
		return false, false, err
	}
	claim := Claim{Owner: owner, Attempt: owner.Alloc, State: Held, ClaimedAt: now}
	if ttl > 0 {
		claim.ExpiresAt = now.Add(ttl)
	}
	next := l.current(now)
	if mark, held, found := next.find(owner); found {
		if ttl == 0 || held.ExpiresAt.Sub(now) > ttl/2 {
			return false, false, nil
		}
		held.ExpiresAt = claim.ExpiresAt
		next.put(mark, held)
		*l = *next
		return true, false, nil
	}
	if next.UnitMiB != slice.UnitMiB && next.hasTasks() {
		return false, false, fmt.Errorf("GPU %s has claims in units of %d MiB, not %d: %w", slice.GPU, next.UnitMiB, slice.UnitMiB, ErrUnitMismatch)
	}
	if claim, err = claim.fitted(slice.GPU, len(slice.Units), slice.Of); err != nil {
		return false, false, err
	}
	next.Units = next.Units.resized(slice.Of)
	if err := next.heldByOthers(owner, slice); err != nil {
		return false, false, err
	}
	displaced := next.displace(slice)
	mark := next.unusedMark()
	next.Units.mark(slice.Units, mark)
	next.UnitMiB = slice.UnitMiB
	next.put(mark, claim)
	next.settle(displaced)
	*l = *next
	return true, true, nil
}
