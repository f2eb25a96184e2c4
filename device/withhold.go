// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"strings"

	"nomad-gpu-mem/allocator"
)

// withholding is a set of units of a GPU that are withheld for one reason.
type withholding struct {
	units  allocator.UnitSet
	reason string
}

const (
	reasonOutside   = "held outside Nomad"
	reasonUnmanaged = "its memory is in use by processes that hold no slice"
	reasonKeptBack  = "its memory is reserved now (reserved_memory), while tasks still hold such units"
)

// whyWithheld returns why units are withheld, and which if there are several reasons; "" if
// none are.
func (g gpu) whyWithheld() string {
	if len(g.withheld) == 1 {
		return g.withheld[0].reason
	}
	var reasons []string
	for _, w := range g.withheld {
		reasons = append(reasons, "units "+w.units.String()+": "+w.reason)
	}
	return strings.Join(reasons, "; ")
}

// withhold decides which of a GPU's units are withheld: those held outside Nomad, and as many
// free ones, from the top, as needed so that memory covers the rest. There are listed units,
// memory for sellable, reduced by unmanaged use.
func withhold(listed, sellable, usedByOthers int, slices []slice, outside allocator.UnitSet) []withholding {
	var withheld []withholding
	if len(outside) > 0 {
		withheld = append(withheld, withholding{outside, reasonOutside})
	}
	held := outside
	for _, s := range slices {
		held = held.Union(s.units)
	}
	free := make(allocator.UnitSet, 0, listed)
	for unit := range listed {
		if !held.Contains(unit) {
			free = append(free, unit)
		}
	}
	left := max(sellable-len(held)-usedByOthers, 0)
	if left >= len(free) {
		return withheld
	}
	reason := reasonUnmanaged
	if usedByOthers == 0 {
		reason = reasonKeptBack
	}
	return append(withheld, withholding{free[left:], reason})
}
