// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// A lost lease is shown. It stops nothing and frees nothing.
func TestLease_lost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store := storetest.Leasing{Memory: storetest.NewMemory()}
	table := allocator.NewTable(store)
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1"}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.Eq(t, allocator.Alive, liveness(t, table))

	must.NoError(t, store.Expire(ctx, "nodes/host-1/lease"))
	must.Eq(t, allocator.Dead, liveness(t, table))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1"}, claimsIn(t, table))

	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1"}))
	must.Eq(t, allocator.Alive, liveness(t, table))
}

func liveness(t *testing.T, table *allocator.Table) allocator.Liveness {
	t.Helper()
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Nodes)
	return snapshot.Liveness(snapshot.Nodes[0])
}

func TestLease_of_a_store_without(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	must.NoError(t, table.PutNode(t.Context(), allocator.NodeState{Name: "host-1"}))
	must.Eq(t, allocator.LivenessUnknown, liveness(t, table))
}

// deniedLeases is a store with a token that may write keys but not hold sessions.
type deniedLeases struct{ *storetest.Memory }

var errNoSession = errors.New("no session")

func (deniedLeases) Lease(context.Context, string, []byte, time.Duration) error { return errNoSession }

func TestLease_denied(t *testing.T) {
	t.Parallel()
	table := allocator.NewTable(deniedLeases{storetest.NewMemory()})
	must.ErrorIs(t, table.PutNode(t.Context(), allocator.NodeState{Name: "host-1"}), errNoSession)
	must.Eq(t, allocator.LivenessUnknown, liveness(t, table)) // and the node is there
}
