// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

// Polls in a row that must agree before units are withheld for unmanaged use,
// and before they are offered again. Use comes and goes, each change of a
// node's offer costs the whole cluster, and memory of a task that ends is free
// some seconds after its claim.
const (
	pollsUp   = 3
	pollsDown = 12
)

// pressure is how many units a GPU withholds because of unmanaged use, with hysteresis in both
// directions.
type pressure struct {
	units  int // withheld now
	streak int // polls in a row that called for more (> 0) or for fewer (< 0)
	target int // the change that all polls of the streak agree on
}

// after applies one poll: the unmanaged use, and the spare memory that is not part of a unit.
// Units are offered again only if a quarter of a unit would be left over.
func (p pressure) after(unmanagedMiB, spareMiB, unitMiB uint64) pressure {
	if unmanagedMiB == 0 {
		return p.step(0, 0)
	}
	return p.step(unitsIn(unmanagedMiB, spareMiB, unitMiB), unitsIn(unmanagedMiB+unitMiB/4, spareMiB, unitMiB))
}

// step applies one poll: how many units to withhold by the use, and by a slightly higher use,
// which decides whether to offer units again.
func (p pressure) step(want, wantAtLeast int) pressure {
	switch {
	case want > p.units:
		if p.streak <= 0 {
			p.streak, p.target = 0, want
		}
		p.streak, p.target = p.streak+1, min(p.target, want)
	case wantAtLeast < p.units:
		if p.streak >= 0 {
			p.streak, p.target = 0, wantAtLeast
		}
		p.streak, p.target = p.streak-1, max(p.target, wantAtLeast)
	default:
		p.streak = 0
	}
	if p.streak == pollsUp || p.streak == -pollsDown {
		return pressure{units: p.target}
	}
	return p
}

// unitsIn returns how many units lack memory because of unmanaged use. Spare memory covers it
// first.
func unitsIn(unmanagedMiB, spareMiB, unitMiB uint64) int {
	return int((subtractFloor(unmanagedMiB, spareMiB) + unitMiB - 1) / unitMiB)
}
