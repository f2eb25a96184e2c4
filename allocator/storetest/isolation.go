// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// testIsolation has a task on two GPUs while the ledger of one of them cannot be read:
// whatever happens to the task is recorded for the other GPU, and the error names the
// key. Claiming alone is for all GPUs or none.
func testIsolation(t *testing.T, store allocator.Store, nonsense string) {
	ctx, table := t.Context(), allocator.NewTable(store)
	task, attempt := owner(1), allocator.Attempt{ID: "attempt-1", Begun: begun(1)}
	units := allocator.NewUnitSet(0, 1)
	bookings := []allocator.Booking{booking(gpu(0), units), booking(gpu(1), units)}
	must.NoError(t, table.Claim(ctx, task, attempt, bookings))
	key := allocator.ClaimsKey(gpu(0))
	entry := get(ctx, t, store, key)
	must.NoError(t, put(ctx, store, key, nonsense, entry.Version))

	good := func() *allocator.Claim {
		ledger, err := allocator.DecodeLedger(get(ctx, t, store, allocator.ClaimsKey(gpu(1))).Value)
		must.NoError(t, err)
		if claims := ledger.Claims(); len(claims) > 0 {
			return &claims[0]
		}
		return nil
	}
	refused := func(err error) {
		t.Helper()
		must.ErrorIs(t, err, allocator.ErrUnreadable)
		must.ErrorContains(t, err, key)
		must.StrNotContains(t, err.Error(), allocator.ClaimsKey(gpu(1)))
		must.Eq(t, nonsense, string(get(ctx, t, store, key).Value))
	}
	on := []allocator.GPUID{gpu(0), gpu(1)}
	refused(table.Running(ctx, task, attempt.ID, "container-1", on))
	must.Eq(t, allocator.Running, good().State)
	refused(table.Stuck(ctx, task, attempt.ID, on))
	must.False(t, good().StuckAt.IsZero())
	refused(table.Release(ctx, task, attempt.ID, on))
	must.Nil(t, good())
	refused(table.Assert(ctx, task, attempt, "container-1", bookings))
	must.Eq(t, "container-1", good().Container)
	must.NoError(t, table.Release(ctx, task, attempt.ID, on[1:]))
	refused(table.Claim(ctx, task, attempt, bookings))
	must.Nil(t, good())
}
