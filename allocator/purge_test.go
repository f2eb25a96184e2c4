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
	for gpu, node := range map[allocator.GPUID]string{"GPU-1": "gone", "GPU-2": "there"} {
		must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: node}))
		must.NoError(t, table.PutGPU(ctx, gpu, allocator.GPUState{Node: node, UnitMiB: 1024, Units: 8}))
		must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf(gpu, 0)}))
		must.NoError(t, table.Cordon(ctx, gpu, "for a test"))
	}
	must.ErrorIs(t, table.PurgeNode(ctx, "gone", noon.Add(-time.Minute)), allocator.ErrConflict) // seen later
	must.Len(t, 2, claimsIn(t, table))

	must.NoError(t, table.PurgeNode(ctx, "gone", noon))
	must.NoError(t, table.PurgeNode(ctx, "gone", noon))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Nodes)
	must.Eq(t, []string{"alloc-1: 0 of GPU-2"}, claimsIn(t, table))
}
