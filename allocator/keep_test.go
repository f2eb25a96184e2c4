// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// Held units are held again after the table was wiped, unless others have the units by then.
func TestKeep(t *testing.T) {
	t.Parallel()
	store := storetest.NewMemory()
	table := (&clock{noon}).table(store)
	ctx := t.Context()
	must.NoError(t, table.Request(ctx, person("hold-1"), time.Minute, request("GPU-1", 2)))
	must.NoError(t, table.Hold(ctx, person("hold-1"), "GPU-1", 0))
	slice := quarters("GPU-1", 2, 3)
	keep := func() (bool, error) { return table.Keep(ctx, person("hold-1"), 0, slice) }
	restored, err := keep()
	must.NoError(t, err)
	must.False(t, restored)

	must.NoError(t, table.Release(ctx, person("hold-1"), "hold-1", []allocator.GPUID{"GPU-1"}))
	must.NoError(t, table.Reserve(ctx, planned("web", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 1)}))
	restored, err = keep()
	must.NoError(t, err)
	must.True(t, restored)
	must.Eq(t, []string{"plan-1: 1 of GPU-1", "hold-1: 2-3 of GPU-1"}, claimsIn(t, table))

	must.NoError(t, table.Release(ctx, person("hold-1"), "hold-1", []allocator.GPUID{"GPU-1"}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 3)}))
	restored, err = keep()
	must.ErrorIs(t, err, allocator.ErrHeld)
	must.False(t, restored)
	must.Eq(t, []string{"plan-1: 1 of GPU-1", "alloc-1: 3 of GPU-1"}, claimsIn(t, table))
}

// The time of a hold counts from the last look of the one who uses it.
func TestKeepRenews(t *testing.T) {
	t.Parallel()
	store := storetest.NewMemory()
	now := &clock{noon}
	table := now.table(store)
	must.NoError(t, table.Request(t.Context(), person("hold-1"), time.Minute, request("GPU-1", 1)))
	must.NoError(t, table.Hold(t.Context(), person("hold-1"), "GPU-1", time.Hour))
	for range 5 {
		now.Time = now.Add(40 * time.Minute)
		restored, err := table.Keep(t.Context(), person("hold-1"), time.Hour, quarters("GPU-1", 3))
		must.NoError(t, err)
		must.False(t, restored)
	}
	_, err := table.Keep(t.Context(), person("hold-1"), -time.Hour, quarters("GPU-1", 3))
	must.ErrorIs(t, err, allocator.ErrInvalid)
}
