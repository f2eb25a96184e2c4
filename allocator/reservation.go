// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// ClockSkew is how much the clocks of the machines that share a table may differ.
	// Claims expire this much later. A clock that is farther off costs a reservation,
	// never a task's slice.
	ClockSkew = 30 * time.Second

	// MaxReservation is the longest life of a reservation. With ClockSkew it bounds for
	// how long a writer with a wrong clock can block units.
	MaxReservation = time.Hour
)

// UnitRequest asks for a number of units of one GPU, no matter which, for an owner that has
// no booking of Nomad.
type UnitRequest struct {
	GPU        GPUID
	UnitMiB    uint64  // memory of one unit, MiB
	TotalUnits int     // units that the GPU is divided into
	Count      int     // requested units
	Avoid      UnitSet // units that must not be taken, such as unhealthy ones
}

func (r UnitRequest) validate() error {
	if r.GPU == "" || r.UnitMiB == 0 || r.UnitMiB > maxUnitMiB || r.TotalUnits <= 0 || r.TotalUnits > maxUnits || r.Count <= 0 {
		return fmt.Errorf("%d of %d units of %d MiB on GPU %q: %w", r.Count, r.TotalUnits, r.UnitMiB, r.GPU, ErrInvalid)
	}
	return nil
}

// Expired reports whether the claim has expired. Claims of tasks never expire. The times in a
// claim are by its writer's clock: a reservation counts only between its creation and its end
// by the reader's clock, within ClockSkew, so that a writer's wrong clock cannot prolong it.
func (c Claim) Expired(now time.Time) bool {
	if c.State.isTasks() {
		return false
	}
	over := !c.ExpiresAt.IsZero() && now.After(c.ExpiresAt.Add(ClockSkew))
	if c.State != Reserved {
		return over
	}
	fromTheFuture := c.ClaimedAt.After(now.Add(ClockSkew))
	return over || fromTheFuture || c.ExpiresAt.Sub(c.ClaimedAt) > MaxReservation || c.ExpiresAt.IsZero()
}

// current returns a copy of the ledger without expired claims.
func (l *Ledger) current(now time.Time) *Ledger {
	next := l.clone()
	for mark, claim := range l.Marks {
		if claim.Expired(now) {
			next.drop(mark)
		}
	}
	return next
}

// reserveUnits gives free units to a reservation or a request, and reports whether the ledger
// changed. It takes the highest numbers, to keep them visibly apart from tasks. Repeating it
// changes nothing.
func (l *Ledger) reserveUnits(claim Claim, request UnitRequest, now time.Time) (changed bool, err error) {
	if err := claim.Owner.validate(); err != nil {
		return false, err
	}
	if err := request.validate(); err != nil {
		return false, err
	}
	next := l.current(now)
	if _, _, found := next.find(claim.Owner); found {
		return false, nil
	}
	if len(next.Marks) > 0 && next.UnitMiB != request.UnitMiB {
		return false, fmt.Errorf("GPU %s has claims in units of %d MiB, not %d: %w", request.GPU, next.UnitMiB, request.UnitMiB, ErrUnitMismatch)
	}
	next.Units, next.UnitMiB = next.Units.resized(request.TotalUnits), request.UnitMiB
	units := next.Units[:request.TotalUnits].freeUnits(request.Count, request.Avoid)
	if len(units) < request.Count {
		return false, fmt.Errorf("GPU %s has %d free units of %d MiB, %d are requested: %w",
			request.GPU, len(units), request.UnitMiB, request.Count, ErrNoRoom)
	}
	claim, err = claim.fitted(request.GPU, request.Count, request.TotalUnits)
	if err != nil {
		return false, err
	}
	mark := next.unusedMark()
	next.Units.mark(units, mark)
	next.put(mark, claim)
	*l = *next
	return true, nil
}

// hold turns a request into held units, which no task can take, and reports whether the
// ledger changed. It returns an error if the request is gone: a task that Nomad had placed
// may have taken its units.
func (l *Ledger) hold(owner Owner, ttl time.Duration, now time.Time) (changed bool, err error) {
	mark, claim, found := l.find(owner)
	switch {
	case !found || claim.Expired(now) || !claim.State.OutsideNomad():
		return false, fmt.Errorf("%s has no request, or it has expired: %w", owner, ErrInvalid)
	case claim.State == Held:
		return false, nil
	}
	claim.State, claim.ClaimedAt, claim.ExpiresAt = Held, now, time.Time{}
	if ttl > 0 {
		claim.ExpiresAt = now.Add(ttl)
	}
	l.put(mark, claim)
	return true, nil
}

// useReservation removes the reservation for the task, the one that ends first if there are
// several. Its units become free: Nomad may have booked other units for this task.
func (l *Ledger) useReservation(task Owner) {
	used := ""
	for mark, claim := range l.Marks {
		if claim.State == Reserved && claim.Owner.isFor(task) &&
			(used == "" || claim.ExpiresAt.Before(l.Marks[used].ExpiresAt)) {
			used = mark
		}
	}
	if used != "" {
		l.drop(used)
	}
}

// displace takes the booked units from the claims that yield, and all units from those of
// another unit size. It returns how many units each has lost, by mark; the claims stay.
func (l *Ledger) displace(b Booking) (displaced map[rune]int) {
	displaced = map[rune]int{}
	for text, claim := range l.Marks {
		if !claim.State.yields() {
			continue
		}
		if l.UnitMiB != b.UnitMiB {
			l.drop(text)
			continue
		}
		mark, _ := utf8.DecodeRuneInString(text)
		if lost := l.Units.unitsOf(mark).Intersect(b.Units); len(lost) > 0 {
			l.Units.mark(lost, free)
			displaced[mark] = len(lost)
		}
	}
	return displaced
}

// settle gives the displaced claims other units, in the order of their IDs. A claim that
// cannot get enough is removed: half a reservation does not help, and its planner plans
// again.
func (l *Ledger) settle(displaced map[rune]int) {
	marks := slices.SortedFunc(maps.Keys(displaced), func(a, b rune) int {
		return strings.Compare(l.Marks[string(a)].Alloc, l.Marks[string(b)].Alloc)
	})
	for _, mark := range marks {
		units := l.Units.freeUnits(displaced[mark], nil)
		if len(units) < displaced[mark] {
			l.drop(string(mark))
			continue
		}
		l.Units.mark(units, mark)
	}
}

// hasTasks reports whether a claim does not yield.
func (l *Ledger) hasTasks() bool {
	for _, claim := range l.Marks {
		if !claim.State.yields() {
			return true
		}
	}
	return false
}

func (l *Ledger) drop(mark string) {
	r, _ := utf8.DecodeRuneInString(mark)
	l.Units.mark(l.Units.unitsOf(r), free)
	delete(l.Marks, mark)
}
