// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// ledgerVersion is the version of the ledger's JSON that this program writes,
// and the highest it reads. Adding a field does not change it.
const ledgerVersion = 1

// Ledger is the record of one GPU's claims: the value of one key of the table.
// Its methods are the rules of claiming; they change the ledger in memory, without
// a store.
type Ledger struct {
	Version int    `json:"version"`
	UnitMiB uint64 `json:"unit_mib"` // memory of one unit, MiB

	// Units has a character for each unit: free, or the mark of its claim. Marks has
	// the claims by their marks.
	Units unitMap          `json:"units"`
	Marks map[string]Claim `json:"claims"`

	// Fence counts the releases that released nothing; see Release.
	Fence uint64 `json:"fence,omitempty"`

	// StartFaults are the failures since a container last ran, nil if there is none.
	StartFaults *StartFaults `json:"start_faults,omitempty"`

	unknown keepjson.Fields
}

// DecodeLedger decodes the value of a claims key. A nil value is the empty ledger. Errors
// match ErrUnreadable.
func DecodeLedger(value []byte) (*Ledger, error) {
	if value == nil {
		return &Ledger{Version: ledgerVersion}, nil
	}
	l := &Ledger{}
	type plain Ledger
	unknown, err := keepjson.Unmarshal(value, (*plain)(l))
	if err == nil {
		err = keepjson.CheckNames(value)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, cmp.Or(isNewer(value, "version"), err))
	}
	l.unknown = unknown
	if err := checkVersion("version", l.Version, ledgerVersion); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return l, nil
}

// Encode returns the value to store, or the error of Check.
func (l *Ledger) Encode() ([]byte, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	type plain Ledger
	return keepjson.Marshal(plain(*l), l.unknown)
}

// Check verifies the invariants: every mark in the unit map has a claim, every claim has
// units, and no owner has two claims. Its errors name marks, not tasks, since job authors
// see them who may not see the tasks of other namespaces.
func (l *Ledger) Check() error {
	for _, mark := range l.Units {
		if _, known := l.Marks[string(mark)]; mark != free && !known {
			return fmt.Errorf("unit map has mark %q without a claim", mark)
		}
	}
	seen := map[[2]string]string{}
	for mark, claim := range l.Marks {
		r, size := utf8.DecodeRuneInString(mark)
		if size == 0 || size != len(mark) || !isMark(r) {
			return fmt.Errorf("a claim has mark %q, want one visible character other than '.' and '!'", mark)
		}
		if len(l.Units.unitsOf(r)) == 0 {
			return fmt.Errorf("the claim with mark %q holds no unit", mark)
		}
		if claim.Owner.validate() != nil {
			return fmt.Errorf("the claim with mark %q has no allocation or no task", mark)
		}
		id := [2]string{claim.Alloc, claim.Task}
		if other, twice := seen[id]; twice {
			return fmt.Errorf("the claims with marks %q and %q belong to one task", min(mark, other), max(mark, other))
		}
		seen[id] = mark
	}
	if l.UnitMiB == 0 && len(l.Marks) > 0 {
		return fmt.Errorf("claims on units of 0 MiB")
	}
	if l.UnitMiB > maxUnitMiB {
		return fmt.Errorf("units of %d MiB, want at most %d", l.UnitMiB, maxUnitMiB)
	}
	return nil
}

// Claims returns the claims with their units, by first unit.
func (l *Ledger) Claims() []Claim {
	claims := make([]Claim, 0, len(l.Marks))
	for mark, claim := range l.Marks {
		r, _ := utf8.DecodeRuneInString(mark)
		claim.Units = l.Units.unitsOf(r)
		claims = append(claims, claim)
	}
	slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(a.Units[0], b.Units[0]) })
	return claims
}

// Claim claims the booked units for the owner and reports whether the ledger changed.
// Repeating a claim with the same attempt only adds missing fields of the attempt. A new
// attempt adopts the claim of the owner's earlier one; the caller ensures that the earlier
// container is gone. If a newer attempt has the claim, the error matches ErrSuperseded.
// Reservations yield, and the task's own reservation is consumed; see displace. If another
// owner holds one of the units, the error is a *HeldError. With an error the ledger is
// unchanged.
func (l *Ledger) Claim(owner Owner, attempt Attempt, b Booking, now time.Time) (changed bool, err error) {
	if err := owner.validate(); err != nil {
		return false, err
	}
	if err := b.Validate(); err != nil {
		return false, err
	}
	attempt = attempt.recorded()
	mark, mine, found := l.find(owner)
	switch {
	case found && mine.Attempt != attempt.ID:
		if err := attempt.refuseOlder(b.GPU, mine, now); err != nil {
			return false, err
		}
	case found && l.UnitMiB == b.UnitMiB && l.Units.unitsOf(mark).Equal(b.Units):
		if changed = attempt.completes(&mine); changed {
			l.put(mark, mine)
		}
		return changed, nil
	}
	next := l.current(now)
	if next.UnitMiB != b.UnitMiB && next.hasTasks() {
		return false, fmt.Errorf("GPU %s is booked in units of %d MiB and has claims in units of %d MiB; "+
			"let its tasks end before you change memory_unit: %w", b.GPU, b.UnitMiB, l.UnitMiB, ErrUnitMismatch)
	}
	claim, err := Claim{
		Owner: owner, Attempt: attempt.ID, Begun: attempt.Begun, Engine: attempt.Engine,
		State: Claimed, ClaimedAt: now, unknown: mine.unknown,
	}.fitted(b.GPU, len(b.Units), b.Of)
	if err != nil {
		return false, err
	}
	next.Units = next.Units.resized(b.Of)
	if err := next.heldByOthers(owner, b); err != nil {
		return false, err
	}
	if found {
		next.Units.mark(next.Units.unitsOf(mark), free)
	} else {
		next.useReservation(owner)
	}
	displaced := next.displace(b)
	if !found {
		mark = next.unusedMark()
	}
	next.Units.mark(b.Units, mark)
	next.UnitMiB = b.UnitMiB
	next.put(mark, claim)
	next.settle(displaced)
	*l = *next
	return true, nil
}

// heldByOthers returns a *HeldError if another owner's claim that does not yield holds a
// unit of the booking.
func (l *Ledger) heldByOthers(owner Owner, b Booking) error {
	var held UnitSet
	holders := map[rune]bool{}
	for _, unit := range b.Units {
		mark := l.Units[unit]
		if mark == free {
			continue
		}
		if holder := l.Marks[string(mark)]; holder.State.yields() || holder.Owner.Is(owner) {
			continue
		}
		held = append(held, unit)
		holders[mark] = true
	}
	if len(held) == 0 {
		return nil
	}
	err := &HeldError{GPU: b.GPU, Units: held}
	for _, claim := range l.Claims() {
		if holders[l.Units[claim.Units[0]]] {
			err.Holders = append(err.Holders, claim)
		}
	}
	return err
}

// Run records that the owner's container runs and reports whether the ledger changed. The
// error matches ErrInvalid if the attempt has no claim.
func (l *Ledger) Run(owner Owner, attempt, container string, now time.Time) (changed bool, err error) {
	mark, claim, found := l.find(owner)
	if !found || claim.Attempt != attempt {
		return false, fmt.Errorf("%s has no claim of attempt %s: %w", owner, attempt, ErrInvalid)
	}
	if claim.State == Running && claim.Container == container {
		return false, nil
	}
	if claim.State != Claimed && claim.State != Running {
		return false, fmt.Errorf("the claim of %s is %s: %w", owner, claim.State, ErrInvalid)
	}
	claim.State, claim.Container, claim.RunningAt = Running, container, now
	l.put(mark, claim)
	l.StartFaults = nil
	return true, nil
}

// Stuck records that the owner's container cannot be stopped and reports whether the ledger
// changed. The record ends with the claim.
func (l *Ledger) Stuck(owner Owner, attempt string, now time.Time) (changed bool) {
	mark, claim, found := l.find(owner)
	if !found || claim.Attempt != attempt || !claim.StuckAt.IsZero() {
		return false
	}
	claim.StuckAt = now
	l.put(mark, claim)
	return true
}

// Release releases the owner's units and reports whether it held any. A claim of another
// attempt stays.
//
// The ledger changes in any case. A claim with a lost answer may still be on its way to the
// store. It was decided on the old ledger, so the store rejects it once the ledger has
// changed.
func (l *Ledger) Release(owner Owner, attempt string) (held bool) {
	mark, claim, found := l.find(owner)
	if !found || claim.Attempt != attempt {
		l.Fence++
		return false
	}
	l.drop(string(mark))
	return true
}

func (l *Ledger) find(owner Owner) (mark rune, claim Claim, found bool) {
	for text, claim := range l.Marks {
		if claim.Owner.Is(owner) {
			mark, _ := utf8.DecodeRuneInString(text)
			return mark, claim, true
		}
	}
	return 0, Claim{}, false
}

func (l *Ledger) put(mark rune, claim Claim) {
	if l.Marks == nil {
		l.Marks = map[string]Claim{}
	}
	l.Marks[string(mark)] = claim
}

// unusedMark returns a mark that no claim has, not even one without units at the moment.
func (l *Ledger) unusedMark() rune {
	for n := 0; ; n++ {
		mark := nthMark(n)
		if _, used := l.Marks[string(mark)]; !used {
			return mark
		}
	}
}

// clone returns a ledger that can be changed without changing this one.
func (l *Ledger) clone() *Ledger {
	c := *l
	c.Units, c.Marks = slices.Clone(l.Units), maps.Clone(l.Marks)
	return &c
}
