// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

// varyingMiB is by how much the driver's own share of a GPU may differ from one start
// of the agent to the next.
const varyingMiB = 64

// Overclaimed is by how much the claims of tasks and people exceed the memory that
// the GPU has to give, in MiB: it became smaller while they held units, as with
// another driver or more memory kept back.
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

// IdleMiB is what a GPU may have in use, in MiB, though nobody uses it. Idle GPUs
// were seen to use some hundred, and up to 912 where NVML does not tell the
// driver's reserve apart.
const IdleMiB = 1024

// Unexplained is the GPU's memory in use, in MiB, that no claim explains, as its
// device plugin last wrote it, in two parts.
//
// Unmanaged is in use by processes that are known to hold no slice, or by tasks
// beyond theirs: GPUState.UnmanagedMiB. The device plugin does not guess it: a
// process that it cannot attribute, such as one whose PID it cannot see, is not in
// it. Such processes are unattributed: what is in use beyond all slices together,
// beyond what the GPU keeps back, beyond IdleMiB, and beyond the first part.
//
// A reservation or a request explains nothing, for nobody uses its units yet. If
// the claims cannot be read, nothing is known of the second part.
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
