// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// A task has two units of 1024 MiB, two are reserved for a task, and the driver reserves 200 MiB.
func TestGPU_Unexplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		used, foreign           uint64
		unmanaged, unattributed uint64
	}{
		"nothing in use":                    {},
		"within the slice":                  {used: 2048},
		"a little more: an idle GPU's":      {used: 2048 + 200 + allocator.IdleMiB},
		"a reservation explains nothing":    {used: 2048 + 200 + allocator.IdleMiB + 500, unattributed: 500},
		"by processes that hold no slice":   {used: 2048 + 700, foreign: 700, unmanaged: 700},
		"by them, and by unknown processes": {used: 2048 + 200 + allocator.IdleMiB + 900, foreign: 700, unmanaged: 700, unattributed: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, _ := newTable(t)
			must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0, 1)}))
			must.NoError(t, table.Reserve(t.Context(), ownerOf("plan-1"), time.Minute,
				[]allocator.UnitRequest{{GPU: "GPU-1", UnitMiB: 1024, TotalUnits: 8, Count: 2}}))
			state := gpuState()
			state.UsedMiB, state.UnmanagedMiB = c.used, c.foreign
			must.NoError(t, table.PutGPU(t.Context(), "GPU-1", state))
			snapshot, err := table.Snapshot(t.Context())
			must.NoError(t, err)
			unmanaged, unattributed := snapshot.GPUs[0].Unexplained()
			must.Eq(t, c.unmanaged, unmanaged)
			must.Eq(t, c.unattributed, unattributed)
		})
	}
}
