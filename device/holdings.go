// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
)

// holdings are the table's claims on one GPU, as far as the device plugin uses them.
type holdings struct {
	known   bool // whether the table was read; else the rest is empty
	spoilt  bool // the claims are unreadable now; these are the last readable ones
	cordon  *allocator.Cordon
	unitMiB uint64 // of the units that claims hold
	of      int    // units that the GPU was divided into when last claimed
	faults  *allocator.StartFaults

	tasks   []allocator.Claim // of Nomad's tasks
	outside []allocator.Claim // held or requested outside Nomad
}

// holdingsOf sorts a GPU's claims. It ignores reservations: they bind planners only.
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
			h.outside = append(h.outside, claim)
		default:
			h.tasks = append(h.tasks, claim)
		}
	}
	return h
}

// stuck names the task with a container that cannot be stopped, "" if there is none.
func (h holdings) stuck() string {
	for _, claim := range h.tasks {
		if !claim.StuckAt.IsZero() {
			return fmt.Sprintf("the container of %s cannot be stopped, for example because its process hangs in the driver: "+
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
	for _, claims := range [][]allocator.Claim{h.tasks, h.outside} {
		for _, claim := range claims {
			last = max(last, claim.Units[len(claim.Units)-1])
		}
	}
	return last
}

// outsideNomad returns the units that are held or requested outside Nomad. They must not be
// offered: Nomad does not know these claims.
func (h holdings) outsideNomad() allocator.UnitSet {
	var units allocator.UnitSet
	for _, claim := range h.outside {
		units = units.Union(claim.Units)
	}
	return units
}
