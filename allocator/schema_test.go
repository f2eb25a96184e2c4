// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// newerValues are values of a later version, by key: in a form that differs in more than the version.
func newerValues() map[string]string {
	return map[string]string{
		allocator.NodeKey("host-1"):       `{"name":["host-1"],"schema":2}`,
		allocator.StateKey("GPU-1"):       `{"node":{"id":1},"schema":2}`,
		allocator.ClaimsKey("GPU-1"):      `{"units":[1,2],"version":2}`,
		allocator.CordonKey("GPU-1"):      `{"reason":{"text":"fan"},"schema":2}`,
		allocator.ProfileKey("resnet50"):  `{"base_mib":"1GiB","schema":2}`,
		allocator.StateKey("GPU-2"):       `{"node":"host-1","model":"A10","unit_mib":1024,"units":8,"schema":2}`,
		allocator.ProfileKey("resnet101"): `{"base_mib":5,"schema":2}`,
	}
}

// What a newer version wrote is reported, and no call of the table overwrites or deletes it.
func TestTable_leaves_values_of_a_newer_version(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	for key, value := range newerValues() {
		must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: key, Value: []byte(value)}}))
	}
	owner, booking := ownerOf("alloc-1"), []allocator.Booking{bookingOf("GPU-1", 0)}
	profile := allocator.Profile{BaseMiB: 1}
	calls := map[string]error{
		"PutNode":            table.PutNode(ctx, allocator.NodeState{Name: "host-1"}),
		"PutGPU":             table.PutGPU(ctx, "GPU-1", gpuState()),
		"PutGPU, readable":   table.PutGPU(ctx, "GPU-2", gpuState()),
		"Claim":              table.Claim(ctx, owner, allocator.Attempt{ID: "start"}, booking),
		"Release":            table.Release(ctx, owner, "start", []allocator.GPUID{"GPU-1"}),
		"Cordon":             table.Cordon(ctx, "GPU-1", "for a test"),
		"Uncordon":           table.Uncordon(ctx, "GPU-1"),
		"PutProfile":         table.PutProfile(ctx, "resnet50", profile),
		"DeleteProfile":      table.DeleteProfile(ctx, "resnet50"),
		"DeleteProfile, too": table.DeleteProfile(ctx, "resnet101"),
		"PurgeNode":          table.PurgeNode(ctx, "host-1", noon, nil),
	}
	for key := range newerValues() {
		calls["PurgeKey of "+key] = table.PurgeKey(ctx, key)
	}
	for call, err := range calls {
		must.ErrorIs(t, err, allocator.ErrNewer, must.Sprint(call))
		must.ErrorContains(t, err, "written by a newer version, upgrade the plugin", must.Sprint(call))
	}
	for key, value := range newerValues() {
		entry, err := store.Get(ctx, key)
		must.NoError(t, err)
		must.Eq(t, value, string(entry.Value), must.Sprint(key))
	}

	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	reported := map[string]bool{}
	for _, problem := range snapshot.Problems {
		must.ErrorIs(t, problem.Err, allocator.ErrNewer, must.Sprint(problem.Key))
		reported[problem.Key] = true
	}
	must.MapLen(t, len(newerValues())-1, reported) // the cordon works
	for _, gpu := range snapshot.GPUs {
		if gpu.ID == "GPU-1" {
			must.Eq(t, "cordoned by a newer version of nomad-gpu-mem", gpu.Cordon.Reason)
		}
	}
}

// The claims and the cordon of a node's GPU are left if a newer version wrote them, and so is the node.
func TestPurgeNode_leaves_values_of_a_newer_version(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.PutNode(ctx, allocator.NodeState{Name: "gone"}))
	for _, gpu := range []allocator.GPUID{"GPU-1", "GPU-3"} {
		must.NoError(t, table.PutGPU(ctx, gpu, allocator.GPUState{Node: "gone", UnitMiB: 1024, Units: 8}))
	}
	for _, key := range []string{allocator.ClaimsKey("GPU-1"), allocator.CordonKey("GPU-1")} {
		must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: key, Value: []byte(newerValues()[key])}}))
	}
	must.ErrorIs(t, table.PurgeNode(ctx, "gone", noon, nil), allocator.ErrNewer)
	for _, key := range []string{allocator.ClaimsKey("GPU-1"), allocator.CordonKey("GPU-1")} {
		entry, err := store.Get(ctx, key)
		must.NoError(t, err)
		must.Eq(t, newerValues()[key], string(entry.Value))
	}
	node, err := table.Node(ctx, "gone")
	must.NoError(t, err)
	must.Eq(t, "gone", node.Name)
	state, err := table.State(ctx, "GPU-3")
	must.NoError(t, err)
	must.Eq(t, "", state.Node, must.Sprint("other GPUs are purged"))
}
