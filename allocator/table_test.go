// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"context"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTable returns a table at noon, over a store that checks what is written.
func newTable(t *testing.T) (*allocator.Table, *storetest.Memory) {
	t.Helper()
	store := storetest.NewMemory()
	table := allocator.NewTable(storetest.Verify(t, store), allocator.WithClock(func() time.Time { return noon }))
	t.Cleanup(func() { must.NoError(t, table.Close()) })
	return table, store
}

// claimsIn returns who holds what, such as "alloc-1: 0-1 of GPU-1".
func claimsIn(t *testing.T, table *allocator.Table) []string {
	t.Helper()
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.Problems)
	claims := []string{}
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			claims = append(claims, claim.Alloc+": "+claim.Units.String()+" of "+string(gpu.ID))
		}
	}
	return claims
}

func TestTable_claims_all_or_none(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-2", 0)}))

	both := []allocator.Booking{bookingOf("GPU-1", 0, 1), bookingOf("GPU-2", 0, 1)}
	must.ErrorIs(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, both), allocator.ErrHeld)
	must.Eq(t, []string{"alloc-1: 0 of GPU-2"}, claimsIn(t, table))

	must.NoError(t, table.Release(ctx, ownerOf("alloc-1"), "start-1", []allocator.GPUID{"GPU-2"}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, both))
	must.Eq(t, []string{"alloc-2: 0-1 of GPU-1", "alloc-2: 0-1 of GPU-2"}, claimsIn(t, table))
}

func TestTable_names_a_GPU_twice(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	twice := []allocator.Booking{bookingOf("GPU-1", 0), bookingOf("GPU-1", 1)}
	must.ErrorIs(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, twice), allocator.ErrInvalid)

	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, twice[:1]))
	gpus := []allocator.GPUID{"GPU-1", "GPU-1"}
	must.NoError(t, table.Running(ctx, ownerOf("alloc-1"), "start-1", "container-1", gpus))
	must.NoError(t, table.Release(ctx, ownerOf("alloc-1"), "start-1", gpus))
	must.SliceEmpty(t, claimsIn(t, table))
}

func TestTable_decides_again_after_a_conflict(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	for range 5 {
		store.FailApply(allocator.ErrConflict, false)
	}
	must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1"}, claimsIn(t, table))
}

func TestTable_gives_up_after_many_conflicts(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	for range 1000 {
		store.FailApply(allocator.ErrConflict, false)
	}
	err := table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)})
	must.ErrorIs(t, err, allocator.ErrConflict)
	must.ErrorContains(t, err, "GPU-1")

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	err = table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)})
	must.ErrorIs(t, err, context.DeadlineExceeded)
}

// An answer that was lost: the caller repeats, and nothing happens twice.
func TestTable_repeats_after_a_lost_answer(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx, owner, gpus := t.Context(), ownerOf("alloc-1"), []allocator.GPUID{"GPU-1"}
	for _, step := range []func() error{
		func() error {
			return table.Claim(ctx, owner, allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)})
		},
		func() error { return table.Running(ctx, owner, "start-1", "container-1", gpus) },
		func() error { return table.Release(ctx, owner, "start-1", gpus) },
	} {
		store.FailApply(allocator.ErrUnavailable, true)
		must.ErrorIs(t, step(), allocator.ErrUnavailable)
		claims := claimsIn(t, table)
		must.NoError(t, step())
		must.Eq(t, claims, claimsIn(t, table))
	}
	must.SliceEmpty(t, claimsIn(t, table))
}

func versionOf(t *testing.T, table *allocator.Table) uint64 {
	t.Helper()
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	return snapshot.Version
}

func TestTable_outage(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx, gpus := t.Context(), []allocator.GPUID{"GPU-1"}
	for _, outage := range []error{allocator.ErrUnavailable, allocator.ErrDenied} {
		store.Fail(outage)
		must.ErrorIs(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}), outage)
		must.ErrorIs(t, table.Running(ctx, ownerOf("alloc-1"), "start-1", "container-1", gpus), outage)
		must.ErrorIs(t, table.Release(ctx, ownerOf("alloc-1"), "start-1", gpus), outage)
		must.ErrorIs(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1"}), outage)
		_, err := table.Snapshot(ctx)
		must.ErrorIs(t, err, outage) // not an empty table
	}
}

func TestTable_snapshot(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-2"}))
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1", Driver: "580.1"}))
	for gpu, state := range map[allocator.GPUID]allocator.GPUState{
		"GPU-a": {Node: "host-1", Index: 1},
		"GPU-b": {Node: "host-1", Index: 0},
		"GPU-c": {Node: "host-2"},
	} {
		must.NoError(t, table.PutGPU(ctx, gpu, state))
	}
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-b", 0), bookingOf("GPU-z", 3)}))
	must.NoError(t, store.Apply(ctx, []allocator.Write{
		{Key: "gpus/GPU-d/state", Value: []byte(`{"node":"host-3","units":"many"}`)},
		{Key: "gpus/GPU-e/state", Value: []byte(`{}`)},
		{Key: "nodes/host-4", Value: []byte(`null`)},
		{Key: "nodes/", Value: []byte{}},                 // a folder, made by hand
		{Key: "gpus/GPU-a/", Value: []byte{}},            // likewise
		{Key: "gpus/GPU-a/notes", Value: []byte("null")}, // of a newer version
		{Key: "quotas/llm", Value: []byte(`x`)},
	}))

	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	var nodes, gpus, problems []string
	for _, node := range snapshot.Nodes {
		nodes = append(nodes, string(node.Name))
	}
	for _, gpu := range snapshot.GPUs {
		gpus = append(gpus, string(gpu.ID)+" of "+string(gpu.State.Node))
	}
	for _, problem := range snapshot.Problems {
		must.ErrorIs(t, problem.Err, allocator.ErrUnreadable)
		problems = append(problems, problem.Key)
	}
	must.Eq(t, []string{"host-1", "host-2"}, nodes)
	must.Eq(t, []string{"GPU-d of ", "GPU-e of ", "GPU-z of ", "GPU-b of host-1", "GPU-a of host-1", "GPU-c of host-2"}, gpus)
	must.Eq(t, []string{"gpus/GPU-d/state", "gpus/GPU-e/state", "nodes/host-4"}, problems)
}

func TestTable_watch(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	version := versionOf(t, table)
	seen := make(chan *allocator.Snapshot, 1)
	go func() {
		snapshot, _ := table.Watch(t.Context(), version)
		seen <- snapshot
	}()
	must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.Len(t, 1, (<-seen).GPUs)
}
