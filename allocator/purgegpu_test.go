// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"context"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// The state of a GPU is deleted only while nothing hangs on it.
func TestPurgeGPU(t *testing.T) {
	t.Parallel()
	const gone = allocator.GPUID("GPU-gone")
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	owner := allocator.Owner{Job: "j", Task: "t", Alloc: "a"}
	booking := allocator.Booking{GPU: gone, UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(1)}
	for name, test := range map[string]struct {
		before func(*testing.T, *allocator.Table)
		purged bool
	}{
		"nothing hangs on it": {before: func(*testing.T, *allocator.Table) {}, purged: true},
		"a claim was released": {before: func(t *testing.T, table *allocator.Table) {
			must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "1"}, []allocator.Booking{booking}))
			must.NoError(t, table.Release(t.Context(), owner, "1", []allocator.GPUID{gone}))
		}, purged: true},
		"a claim": {before: func(t *testing.T, table *allocator.Table) {
			must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "1"}, []allocator.Booking{booking}))
		}},
		"a reservation": {before: func(t *testing.T, table *allocator.Table) {
			must.NoError(t, table.Reserve(t.Context(), owner, time.Minute, []allocator.UnitRequest{{GPU: gone, UnitMiB: 1024, TotalUnits: 8, Count: 1}}))
		}},
		"a cordon": {before: func(t *testing.T, table *allocator.Table) { must.NoError(t, table.Cordon(t.Context(), gone, "fan")) }},
		"it came back": {before: func(t *testing.T, table *allocator.Table) {
			must.NoError(t, table.PutGPU(t.Context(), gone, allocator.GPUState{Node: "n", UnitMiB: 1024, Units: 7}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := storetest.NewMemory()
			earlier := allocator.NewTable(store, allocator.WithClock(func() time.Time { return now.Add(-48 * time.Hour) }))
			must.NoError(t, earlier.PutGPU(t.Context(), gone, allocator.GPUState{Node: "n", UnitMiB: 1024, Units: 8}))
			table := allocator.NewTable(store, allocator.WithClock(func() time.Time { return now }))
			test.before(t, table)
			err := table.PurgeGPU(t.Context(), gone, now.Add(-48*time.Hour))
			entries, _, watchErr := store.Watch(t.Context(), 0)
			must.NoError(t, watchErr)
			if test.purged {
				must.NoError(t, err)
				must.SliceEmpty(t, entries)
				must.NoError(t, table.PurgeGPU(t.Context(), gone, now), must.Sprint("once more"))
				return
			}
			must.ErrorIs(t, err, allocator.ErrConflict)
			must.NotEq(t, 0, len(entries))
		})
	}
}

// overtaken is a store in which a claim is made just before a change is applied.
type overtaken struct {
	*storetest.Memory
	claim func()
}

func (s *overtaken) Apply(ctx context.Context, writes []allocator.Write) error {
	if claim := s.claim; claim != nil {
		s.claim = nil
		claim()
	}
	return s.Memory.Apply(ctx, writes)
}

// A task that claims on the GPU while it is purged keeps its claim.
func TestPurgeGPU_beside_a_claim(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	store := &overtaken{Memory: storetest.NewMemory()}
	table := allocator.NewTable(store, allocator.WithClock(func() time.Time { return now }))
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", allocator.GPUState{Node: "n", UnitMiB: 1024, Units: 8}))
	store.claim = func() {
		booking := allocator.Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(1)}
		must.NoError(t, table.Claim(t.Context(), allocator.Owner{Task: "t", Alloc: "a"}, allocator.Attempt{ID: "1"}, []allocator.Booking{booking}))
	}
	must.ErrorIs(t, table.PurgeGPU(t.Context(), "GPU-1", now), allocator.ErrConflict)
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.Len(t, 1, snapshot.GPUs[0].Claims())
	must.Eq(t, "n", snapshot.GPUs[0].State.Node)
}
