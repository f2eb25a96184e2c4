// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
)

// holdings is what the table says of one GPU, as far as it matters here.
type holdings struct {
	known   bool // the table was read; else there is nothing
	spoilt  bool // the claims cannot be read now; these are the last that could
	cordon  *allocator.Cordon
	unitMiB uint64 // of the units that claims hold
	of      int    // units that the GPU was divided into when last claimed
	faults  *allocator.StartFaults

	tasks  []allocator.Claim // of Nomad's tasks
	people []allocator.Claim // of people outside Nomad, who have units or want some
}

// holdingsOf sorts a GPU's claims. Reservations bind planners only: here they
// are nothing.
func holdingsOf(g allocator.GPU, known bool, now time.Time) holdings {
	h := holdings{known: known, cordon: g.Cordon}
	if g.Ledger == nil {
		return h
	}
	h.unitMiB, h.of, h.faults = g.Ledger.UnitMiB, len(g.Ledger.Units), g.Ledger.StartFaults
	for _, claim := range g.Claims() {
		switch {
		case claim.Expired(now), claim.State == allocator.Reserved:
		case claim.State.OutsideNomad():
			h.people = append(h.people, claim)
		default:
			h.tasks = append(h.tasks, claim)
		}
	}
	return h
}

// stuck says which task's container cannot be ended, if there is one.
func (h holdings) stuck() string {
	for _, claim := range h.tasks {
		if !claim.StuckAt.IsZero() {
			return fmt.Sprintf("the container of %s cannot be ended, as when its process hangs in the driver: "+
				"look for state D on the host; reset the GPU, or reboot", claim.Owner)
		}
	}
	return ""
}

// inOtherUnits reports whether units of another size are held.
func (h holdings) inOtherUnits(unitMiB uint64) bool {
	return h.lastUnit() >= 0 && h.unitMiB != unitMiB
}

// lastUnit is the highest unit that is held, or -1.
func (h holdings) lastUnit() int {
	last := -1
	for _, claims := range [][]allocator.Claim{h.tasks, h.people} {
		for _, claim := range claims {
			last = max(last, claim.Units[len(claim.Units)-1])
		}
	}
	return last
}

// outsideNomad returns the units that Nomad must not be offered, since people
// have them: it knows nothing of their claims.
func (h holdings) outsideNomad() allocator.UnitSet {
	var units allocator.UnitSet
	for _, claim := range h.people {
		units = units.Union(claim.Units)
	}
	return units
}
