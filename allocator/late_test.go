// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// slowStore keeps its first write back, as a network may that breaks the
// connection and delivers the request later.
type slowStore struct {
	allocator.Store
	kept []allocator.Write
}

func (s *slowStore) Apply(ctx context.Context, writes []allocator.Write) error {
	if s.kept == nil {
		s.kept = writes
		return fmt.Errorf("connection reset: %w", allocator.ErrUnavailable)
	}
	return s.Store.Apply(ctx, writes)
}

// A claim that arrives after its release has no effect. Otherwise nothing would ever
// release it.
func TestTable_late_claim(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *allocator.Table){
		"new GPU": func(*testing.T, *allocator.Table) {},
		"GPU in use": func(t *testing.T, table *allocator.Table) {
			b := allocator.Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(7)}
			must.NoError(t, table.Claim(t.Context(), allocator.Owner{Alloc: "alloc-0", Task: "t"}, allocator.Attempt{ID: "a"}, []allocator.Booking{b}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory := storetest.NewMemory()
			prepare(t, allocator.NewTable(memory))
			before := claimsIn(t, allocator.NewTable(memory))
			slow := &slowStore{Store: memory}
			table := allocator.NewTable(slow)

			owner := allocator.Owner{Alloc: "alloc-1", Task: "t"}
			b := allocator.Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(0, 1)}
			must.ErrorIs(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "a"}, []allocator.Booking{b}), allocator.ErrUnavailable)
			must.NoError(t, table.Release(t.Context(), owner, "a", []allocator.GPUID{"GPU-1"}))
			must.ErrorIs(t, memory.Apply(t.Context(), slow.kept), allocator.ErrConflict)
			must.Eq(t, before, claimsIn(t, table))
		})
	}
}
