// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"cmp"
	"slices"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// slice is what one task holds of a GPU, and how much of it the task uses.
type slice struct {
	key       string // identifies it, also across readings
	container string // empty if unknown
	units     allocator.UnitSet
	mib       uint64
	usedMiB   uint64
	partly    bool // NVML does not report the use of some of its processes
	peakMiB   uint64
}

// occupancy is who uses a GPU's memory.
type occupancy struct {
	slices []slice // by first unit

	// unmanagedMiB is in use by processes without a slice, or by tasks beyond theirs. It is
	// never overestimated.
	unmanagedMiB uint64
	uncertain    bool // unmanagedMiB is unknown now
}

// occupy determines who uses a GPU, from its claims and its known processes. If the claims
// were never read, the result is uncertain.
func occupy(g nvml.GPU, unitMiB uint64, held holdings, users map[int]user) occupancy {
	slices := slicesOf(held.tasks, unitMiB)
	var t tally
	for _, process := range g.Processes {
		u, known := users[process.PID]
		if !known {
			t.add(&t.unknown, process)
			continue
		}
		if u.gone {
			continue // its memory is in use without a process
		}
		var holder *slice
		if slices, holder = holderOf(slices, u, allocator.GPUID(g.UUID), unitMiB); holder == nil {
			t.add(&t.foreign, process)
			continue
		}
		t.add(&holder.usedMiB, process)
		holder.partly = holder.partly || process.UsedMiB == nil
	}
	o := occupancy{slices: sorted(slices)}
	if g.Memory == nil || !held.known {
		o.uncertain = true
		return o
	}
	outside := uint64(len(held.outsideNomad())) * unitMiB
	o.unmanagedMiB, o.uncertain = t.unmanaged(*g.Memory, g.Processes != nil, o.slices, outside)
	return o
}

// slicesOf returns the slices of claims.
func slicesOf(claims []allocator.Claim, unitMiB uint64) []slice {
	slices := make([]slice, 0, len(claims))
	for _, claim := range claims {
		slices = append(slices, slice{
			key:       claim.Alloc + "/" + claim.Task + "/" + claim.Attempt,
			container: claim.Container,
			units:     claim.Units,
			mib:       uint64(len(claim.Units)) * unitMiB,
		})
	}
	return slices
}

// holderOf finds the slice of a process: that of its container, or that of the booking in its
// environment. Drivers without the table, such as Nomad's Docker driver, make no claim but
// pass the booking on; the slice is then added.
func holderOf(all []slice, u user, gpu allocator.GPUID, unitMiB uint64) ([]slice, *slice) {
	for i := range all {
		if all[i].container != "" && slices.Contains(u.containers, all[i].container) {
			return all, &all[i]
		}
	}
	for _, booking := range u.bookings {
		if booking.GPU != gpu || booking.UnitMiB != unitMiB {
			continue
		}
		for i := range all {
			if len(all[i].units.Intersect(booking.Units)) > 0 {
				return all, &all[i]
			}
		}
		all = append(all, slice{key: "units " + booking.Units.String(), units: booking.Units, mib: booking.MiB()})
		return all, &all[len(all)-1]
	}
	return all, nil
}

func sorted(all []slice) []slice {
	slices.SortFunc(all, func(a, b slice) int { return cmp.Compare(a.units[0], b.units[0]) })
	return all
}

// tally sums up what processes use.
type tally struct {
	foreign uint64 // by processes without a slice
	unknown uint64 // by processes that cannot be attributed
	listed  uint64 // by all
	silent  bool   // the use of some process is unknown
	hidden  bool   // some process cannot be attributed, and its use is unknown
	vague   bool   // some process cannot be attributed
}

func (t *tally) add(sum *uint64, process nvml.Process) {
	isUnknown := sum == &t.unknown
	t.vague = t.vague || isUnknown
	if process.UsedMiB == nil {
		t.silent, t.hidden = true, t.hidden || isUnknown
		return
	}
	*sum += *process.UsedMiB
	t.listed += *process.UsedMiB
}

// unmanaged returns the use that slices do not cover. If every process is known with its use,
// that is the use of each slice beyond its size, and the use without a process. Otherwise a
// slice covers its whole size, and only the GPU's total counts. Units held outside Nomad cover
// the use of processes without a slice.
func (t tally) unmanaged(m nvml.Memory, isListed bool, all []slice, outside uint64) (mib uint64, uncertain bool) {
	if t.hidden {
		return 0, true
	}
	slices := outside
	for _, s := range all {
		slices += s.mib
	}
	if !isListed || t.silent || t.vague {
		return subtractFloor(m.UsedMiB, slices+t.unknown+allocator.IdleMiB), false
	}
	unmanaged := subtractFloor(t.foreign, outside)
	for _, s := range all {
		unmanaged += subtractFloor(s.usedMiB, s.mib)
	}
	if m.ReservedMiB != nil { // else the driver's reserve is part of the use
		unmanaged += subtractFloor(m.UsedMiB, t.listed+allocator.IdleMiB)
	}
	return unmanaged, false
}

// subtractFloor returns a - b, or 0 if b is larger.
func subtractFloor(a, b uint64) uint64 { return a - min(a, b) }
