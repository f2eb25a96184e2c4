// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

// varyingMiB is by how much the driver's own share of a GPU may differ from one start
// of the agent to the next.
const varyingMiB = 64

// Overclaimed returns by how many MiB the claims exceed the GPU's offered memory: the GPU
// became smaller while units were held, for example by another driver or more reserved
// memory.
func (g GPU) Overclaimed() uint64 {
	if g.Ledger == nil || g.State.MemoryMiB == 0 {
		return 0
	}
	var claimed uint64
	for _, claim := range g.Claims() {
		if !claim.State.yields() {
			claimed += uint64(len(claim.Units)) * g.Ledger.UnitMiB
		}
	}
	over := claimed - min(claimed, g.State.MemoryMiB-min(g.State.MemoryMiB, g.State.ReservedMiB))
	if over <= varyingMiB {
		return 0
	}
	return over
}

// IdleMiB is how many MiB an idle GPU may have in use. Observed: a few hundred, and up to 912
// where NVML does not report the driver's reserve separately.
const IdleMiB = 1024

// Unexplained returns the GPU memory in use, in MiB, that no claim covers, as last reported by
// the device plugin, in two parts.
//
// Unmanaged is in use by processes that are known to hold no slice, or by tasks beyond
// theirs: GPUState.UnmanagedMiB. It excludes processes that the device plugin cannot
// attribute, for example with an invisible PID. Unattributed is the use by these: what
// exceeds the sum of all slices, the GPU's reserve, IdleMiB and the first part.
//
// Reservations and requests cover nothing, since their units are not in use yet. If the
// claims cannot be read, unattributed is 0.
func (g GPU) Unexplained() (unmanaged, unattributed uint64) {
	unmanaged = g.State.UnmanagedMiB
	if g.Ledger == nil {
		return unmanaged, 0
	}
	explained := g.State.ReservedMiB + IdleMiB + unmanaged
	for _, claim := range g.Claims() {
		if !claim.State.yields() {
			explained += uint64(len(claim.Units)) * g.Ledger.UnitMiB
		}
	}
	return unmanaged, g.State.UsedMiB - min(g.State.UsedMiB, explained)
}
