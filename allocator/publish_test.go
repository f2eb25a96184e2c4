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

func gpuState() allocator.GPUState {
	return allocator.GPUState{
		Node: "host-1", Model: "NVIDIA A100", Index: 3, MemoryMiB: 8400, ReservedMiB: 200, UnitMiB: 1024, Units: 8,
	}
}

func TestTable_PutGPU_writes_changes_only(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	state := gpuState()
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", state))
	first := versionOf(t, table)

	state.Unhealthy = allocator.UnitSet{} // none, as before
	state.UpdatedAt = noon.AddDate(1, 0, 0)
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", state))
	must.Eq(t, first, versionOf(t, table))

	state.Health = "Xid 79: the GPU has fallen off the bus"
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", state))
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.Greater(t, first, snapshot.Version)
	must.Eq(t, state.Health, snapshot.GPUs[0].State.Health)
	must.Eq(t, noon, snapshot.GPUs[0].State.UpdatedAt)
}

// What was written of one node or GPU can be read without the rest of the table.
func TestTable_Node_and_State(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	node, err := table.Node(t.Context(), "host-1")
	must.NoError(t, err)
	must.Eq(t, "", node.Name)
	state, err := table.State(t.Context(), "GPU-1")
	must.NoError(t, err)
	must.Eq(t, "", state.Node)

	must.NoError(t, table.PutNode(t.Context(), allocator.NodeState{Name: "host-1", GPUs: []allocator.GPUID{"GPU-1"}}))
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", gpuState()))
	node, err = table.Node(t.Context(), "host-1")
	must.NoError(t, err)
	must.Eq(t, []allocator.GPUID{"GPU-1"}, node.GPUs)
	must.Eq(t, noon, node.LastSeen)
	state, err = table.State(t.Context(), "GPU-1")
	must.NoError(t, err)
	must.Eq(t, gpuState().Model, state.Model)

	must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: "nodes/host-2", Value: []byte("null")}}))
	_, err = table.Node(t.Context(), "host-2")
	must.ErrorIs(t, err, allocator.ErrUnreadable)
	must.ErrorContains(t, err, "nodes/host-2")
}

func TestTable_PutGPU_leaves_the_claims(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", gpuState()))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1"}, claimsIn(t, table))
}

func TestTable_PutGPU_of_two_nodes(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", gpuState()))
	other := gpuState()
	other.Node = "host-2"
	err := table.PutGPU(t.Context(), "GPU-1", other)
	must.ErrorIs(t, err, allocator.ErrOtherNode)
	for _, part := range []string{"GPU-1", "host-1", "host-2"} {
		must.ErrorContains(t, err, part)
	}
}

// Two machines have one host name. Each reports its own GPUs, and neither report may
// treat the other machine's GPUs as lost.
func TestTable_PutNode_of_two_machines_with_one_name(t *testing.T) {
	t.Parallel()
	now := noon
	table := allocator.NewTable(storetest.NewMemory(), allocator.WithClock(func() time.Time { return now }))
	report := func(boot string, started time.Time, gpu allocator.GPUID) error {
		now = now.Add(30 * time.Second)
		return table.PutNode(t.Context(), allocator.NodeState{
			Name: "host-1", Boot: boot, StartedAt: started, GPUs: []allocator.GPUID{gpu},
		})
	}
	lacks := func(gpu allocator.GPUID) bool {
		node, err := table.Node(t.Context(), "host-1")
		must.NoError(t, err)
		return node.Lacks(gpu)
	}
	must.NoError(t, report("boot-1", noon, "GPU-1"))
	rebooted := now.Add(time.Second)
	must.NoError(t, report("boot-2", rebooted, "GPU-1"), must.Sprint("a machine that was rebooted is not another"))
	must.True(t, lacks("GPU-2"))

	err := report("boot-3", noon, "GPU-2")
	must.ErrorIs(t, err, allocator.ErrSharedName)
	must.ErrorContains(t, err, "host-1")
	must.ErrorIs(t, report("boot-2", rebooted, "GPU-1"), allocator.ErrSharedName)
	for range 2 { // also while one reports more often than the other
		must.NoError(t, report("boot-2", rebooted, "GPU-1"))
		must.False(t, lacks("GPU-1"))
		must.False(t, lacks("GPU-2"))
	}
	must.NoError(t, report("boot-2", rebooted, "GPU-1"))
	must.True(t, lacks("GPU-2"), must.Sprint("the other machine is gone"))
}

// Two machines share a host name for a while, and the clock of one is ahead: the shared name is forgotten
// once the clock is right.
func TestTable_PutNode_after_a_clock_that_was_ahead(t *testing.T) {
	t.Parallel()
	now := noon
	table := allocator.NewTable(storetest.NewMemory(), allocator.WithClock(func() time.Time { return now }))
	report := func(boot string, started time.Time) {
		_ = table.PutNode(t.Context(), allocator.NodeState{Name: "host-1", Boot: boot, StartedAt: started, GPUs: []allocator.GPUID{"GPU-1"}})
	}
	report("boot-2", noon)
	now = noon.AddDate(1, 0, 0)
	report("boot-1", noon)
	for now = noon; now.Before(noon.Add(5 * time.Minute)); now = now.Add(30 * time.Second) {
		report("boot-1", noon)
	}
	node, err := table.Node(t.Context(), "host-1")
	must.NoError(t, err)
	must.True(t, node.SharedUntil.IsZero(), must.Sprint(node.SharedUntil))
	must.True(t, node.Lacks("GPU-2"))
}

// A VM is replaced, and the GPU returns under another host name. Its state is adopted
// over once the old node is gone, or says that it no longer finds the GPU.
func TestTable_PutGPU_takes_over_from_a_node_that_is_gone(t *testing.T) {
	t.Parallel()
	const gpu = allocator.GPUID("GPU-1")
	for name, tc := range map[string]struct {
		node    *allocator.NodeState // of the old node; nil: it has no state
		leased  bool
		expired bool          // its lease
		later   time.Duration // since it was last seen
		taken   bool
	}{
		"alive":                    {node: &allocator.NodeState{}, leased: true, later: time.Hour},
		"lease lost":               {node: &allocator.NodeState{}, leased: true, expired: true, later: 2 * time.Minute, taken: true},
		"lease lost for a moment":  {node: &allocator.NodeState{}, leased: true, expired: true, later: time.Minute},
		"no leases, silent":        {node: &allocator.NodeState{}, later: 11 * time.Minute, taken: true},
		"no leases, not so silent": {node: &allocator.NodeState{}, later: 9 * time.Minute},
		"it was purged":            {later: 11 * time.Minute, taken: true},
		"it was purged just now":   {later: time.Minute},
		"it lacks the GPU":         {node: &allocator.NodeState{GPUs: []allocator.GPUID{"GPU-2"}}, leased: true, taken: true},
		"it has the GPU":           {node: &allocator.NodeState{GPUs: []allocator.GPUID{gpu}}, leased: true, later: time.Hour},
	} {
		memory, now := storetest.NewMemory(), noon
		var store allocator.Store = memory
		if tc.leased {
			store = storetest.Leasing{Memory: memory}
		}
		table := allocator.NewTable(store, allocator.WithClock(func() time.Time { return now }))
		if tc.node != nil {
			tc.node.Name = "host-1"
			must.NoError(t, table.PutNode(t.Context(), *tc.node))
		}
		must.NoError(t, table.PutGPU(t.Context(), gpu, gpuState()))
		must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf(gpu, 0)}))
		if tc.expired {
			must.NoError(t, storetest.Leasing{Memory: memory}.Expire(t.Context(), "nodes/host-1/lease"))
		}
		now = now.Add(tc.later)
		moved := gpuState()
		moved.Node = "host-2"
		err := table.PutGPU(t.Context(), gpu, moved)
		if !tc.taken {
			must.ErrorIs(t, err, allocator.ErrOtherNode, must.Sprint(name))
			continue
		}
		must.NoError(t, err, must.Sprint(name))
		state, err := table.State(t.Context(), gpu)
		must.NoError(t, err)
		must.Eq(t, "host-2", state.Node)
		must.Eq(t, []string{"alloc-1: 0 of GPU-1"}, claimsIn(t, table), must.Sprint("claims are not touched"))
	}
}

func TestTable_put_refuses(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.ErrorIs(t, table.PutGPU(ctx, "", gpuState()), allocator.ErrInvalid)
	must.ErrorIs(t, table.PutGPU(ctx, "GPU-1", allocator.GPUState{}), allocator.ErrInvalid)
	must.ErrorIs(t, table.PutNode(ctx, allocator.NodeState{}), allocator.ErrInvalid)

	must.NoError(t, store.Apply(ctx, []allocator.Write{
		{Key: allocator.StateKey("GPU-1"), Value: []byte("{")},
		{Key: allocator.NodeKey("host-1"), Value: []byte{}},
	}))
	must.ErrorIs(t, table.PutGPU(ctx, "GPU-1", gpuState()), allocator.ErrUnreadable)
	must.ErrorIs(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1"}), allocator.ErrUnreadable)
}

func TestTable_put_keeps_unknown_fields(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	gpuKey, nodeKey := allocator.StateKey("GPU-1"), allocator.NodeKey("host-1")
	must.NoError(t, store.Apply(ctx, []allocator.Write{
		{Key: gpuKey, Value: []byte(`{"node":"host-1","numa":{"node":1},"Model":"spelt otherwise"}`)},
		{Key: nodeKey, Value: []byte(`{"name":"host-1","lease":"abc"}`)},
	}))
	must.NoError(t, table.PutGPU(ctx, "GPU-1", allocator.GPUState{Node: "host-1", Model: "NVIDIA A100"}))
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1", Version: "1.2.3"}))

	gpu, err := store.Get(ctx, gpuKey)
	must.NoError(t, err)
	must.StrContains(t, string(gpu.Value), `"numa":{"node":1}`)
	must.StrContains(t, string(gpu.Value), `"Model":"spelt otherwise"`)
	must.StrContains(t, string(gpu.Value), `"model":"NVIDIA A100"`)
	node, err := store.Get(ctx, nodeKey)
	must.NoError(t, err)
	must.EqJSON(t, `{"schema":1,"name":"host-1","version":"1.2.3","driver":"","last_seen":"2026-01-02T12:00:00Z","lease":"abc"}`, string(node.Value))
}

// Writers of other keys do not disturb, and a conflict is decided again.
func TestTable_put_after_a_conflict(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	store.FailApply(allocator.ErrConflict, false)
	store.FailApply(allocator.ErrUnavailable, true)
	must.ErrorIs(t, table.PutGPU(t.Context(), "GPU-1", gpuState()), allocator.ErrUnavailable)
	must.NoError(t, table.PutGPU(t.Context(), "GPU-1", gpuState()))
}

// An invalid value that an operator wrote under the key of a state must not be used.
func TestTable_odd_states(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{
		`{"node":"host-1","unit_mib":1024,"units":-1}`,
		`{"node":"host-1","unit_mib":1024,"units":2000000000}`,
		`{"node":"host-1","unit_mib":0,"units":4}`,
		`{"node":"host-1","unit_mib":18446744073709551615,"units":4}`,
		`{"node":"host-1","memory_mib":18446744073709551615}`,
		`{"node":"host-1","reserved_mib":18446744073709551615}`,
		`{"node":"host-1","used_mib":18446744073709551615}`,
		`{"node":"host-1","unmanaged_mib":18446744073709551615}`,
	} {
		table, store := newTable(t)
		key := allocator.StateKey("GPU-1")
		must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: key, Value: []byte(odd)}}))
		snapshot, err := table.Snapshot(t.Context())
		must.NoError(t, err)
		must.Len(t, 1, snapshot.Problems, must.Sprint(odd))
		must.ErrorIs(t, snapshot.Problems[0].Err, allocator.ErrUnreadable)
		must.Eq(t, allocator.GPUState{}, snapshot.GPUs[0].State, exported)
		must.ErrorIs(t, table.PutGPU(t.Context(), "GPU-1", gpuState()), allocator.ErrUnreadable)
	}
	table, _ := newTable(t)
	must.ErrorIs(t, table.PutGPU(t.Context(), "GPU-1", allocator.GPUState{Node: "host-1", Units: -1}), allocator.ErrInvalid)
}

// A value that was copied to the key of another node is unreadable, and can be purged.
func TestTable_node_under_another_key(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx, key := t.Context(), allocator.NodeKey("host-2")
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-1"}))
	must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: key, Value: []byte(`{"name":"host-1"}`)}}))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Nodes)
	must.Eq(t, key, snapshot.Problems[0].Key)
	_, err = table.Node(ctx, "host-2")
	must.ErrorIs(t, err, allocator.ErrUnreadable)
	must.ErrorIs(t, table.PutNode(ctx, allocator.NodeState{Name: "host-2"}), allocator.ErrUnreadable)
	must.NoError(t, table.PurgeKey(ctx, key))
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "host-2"}))
}
