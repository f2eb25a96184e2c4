// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestPurgeKey(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	key := allocator.ClaimsKey("GPU-1")
	must.NoError(t, table.PurgeKey(ctx, key))
	must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: key, Value: []byte("4 GiB")}}))
	must.NoError(t, table.PurgeKey(ctx, key))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.ErrorIs(t, table.PurgeKey(ctx, key), allocator.ErrConflict)
	must.Len(t, 1, claimsIn(t, table))
}

func TestPurgeNode(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	for gpu, node := range map[allocator.GPUID]allocator.NodeName{"GPU-1": "gone", "GPU-2": "there"} {
		must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: node}))
		must.NoError(t, table.PutGPU(ctx, gpu, allocator.GPUState{Node: node, UnitMiB: 1024, Units: 8}))
		owner := ownerOf("alloc-1")
		owner.NodeName = node
		must.NoError(t, table.Claim(ctx, owner, allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf(gpu, 0)}))
		must.NoError(t, table.Cordon(ctx, gpu, "for a test"))
	}
	must.ErrorIs(t, table.PurgeNode(ctx, "gone", noon.Add(-time.Minute), nil), allocator.ErrConflict) // seen later
	must.Len(t, 2, claimsIn(t, table))

	must.NoError(t, table.PurgeNode(ctx, "gone", noon, nil))
	must.NoError(t, table.PurgeNode(ctx, "gone", noon, nil))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Nodes)
	must.Eq(t, []string{"alloc-1: 0 of GPU-2"}, claimsIn(t, table))
}

// The tasks of another node may run: a GPU that moved there has their claims, though its
// state may still be the purged node's.
func TestPurgeNode_leaves_claims_of_other_nodes(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "gone"}))
	must.NoError(t, table.PutGPU(ctx, "GPU-1", allocator.GPUState{Node: "gone", UnitMiB: 1024, Units: 8}))
	must.NoError(t, table.Cordon(ctx, "GPU-1", "for a test"))
	for unit, owner := range map[int]allocator.Owner{0: ownerOf("old"), 1: ownerOf("new")} {
		owner.NodeName = map[int]allocator.NodeName{0: "gone", 1: "there"}[unit]
		must.NoError(t, table.Claim(ctx, owner, allocator.Attempt{ID: "start"}, []allocator.Booking{bookingOf("GPU-1", unit)}))
	}
	must.NoError(t, table.PurgeNode(ctx, "gone", noon, nil))
	must.NoError(t, table.PurgeNode(ctx, "gone", noon, nil))
	must.Eq(t, []string{"new: 1 of GPU-1"}, claimsIn(t, table))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.Nodes)
	must.Eq(t, "", snapshot.GPUs[0].State.Node)
	must.NotNil(t, snapshot.GPUs[0].Cordon)
}

// A task that may run keeps its claim, though its node has gone by another name since.
func TestPurgeNode_spares_living_claims(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "gone"}))
	must.NoError(t, table.PutGPU(ctx, "GPU-1", allocator.GPUState{Node: "gone", UnitMiB: 1024, Units: 8}))
	for unit, owner := range map[int]allocator.Owner{0: ownerOf("ended"), 1: ownerOf("running")} {
		owner.NodeName = "gone"
		must.NoError(t, table.Claim(ctx, owner, allocator.Attempt{ID: "start"}, []allocator.Booking{bookingOf("GPU-1", unit)}))
	}
	must.NoError(t, table.PurgeNode(ctx, "gone", noon, func(c allocator.Claim) bool { return c.Alloc == "running" }))
	must.Eq(t, []string{"running: 1 of GPU-1"}, claimsIn(t, table))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.Nodes)
}
