// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

func pool(name string) option { return func(job *api.Job) { job.NodePool = &name } }

func nodesOf(pool string, nodes []*structs.Node) []*structs.Node {
	for _, n := range nodes {
		n.NodePool = pool
	}
	return nodes
}

// A job that a batch queue holds back is not confined to nodes, which would block the jobs
// behind it, and has no reservation, which would expire before its turn.
func TestBatchQueue(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nodesOf("batch", nomadtest.Nodes(3, a10(), a10())), Queue: "fifo"}
	p := plan(t, newJob("train", 4, kind("batch"), pool("batch")), cluster, shortlist())
	must.Eq(t, "fifo", p.Queue)
	must.Eq(t, planner.Soft, p.Groups[0].Pin)
	must.StrContains(t, p.Groups[0].Note, "batch queue")
	must.SliceEmpty(t, group(p).Constraints)
	must.Len(t, 1, group(p).Affinities)
	must.SliceEmpty(t, p.Reservations)

	p = plan(t, newJob("train", 4, kind("batch"), pool("batch")), cluster, planner.Options{Policy: policy("best-fit"), Pin: planner.Hard})
	must.Eq(t, planner.Hard, p.Groups[0].Pin, must.Sprint("it was asked for"))
	must.SliceEmpty(t, p.Reservations)
}

func TestMayQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		job  *api.Job
		want bool
	}{
		{newJob("a", 1, kind("batch"), pool("batch")), true},
		{newJob("a", 1, kind("batch"), pool("default")), false},
		{newJob("a", 1, kind("batch"), pool("all")), false},
		{newJob("a", 1, kind("batch"), pool("")), false},
		{newJob("a", 1, kind("service"), pool("batch")), false},
		{newJob("a", 1, kind("sysbatch"), pool("batch")), false},
		{newJob("a", 1, kind("batch"), pool("batch"), templates()["periodic"]), false},
	} {
		must.Eq(t, c.want, planner.MayQueue(c.job))
	}
}

// Nomad would not score all nodes of a list that is longer than its limit.
func TestNodeLimitBelowTheShortlist(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(9, a10()), NodeLimit: 5}
	p := plan(t, newJob("web", 4), cluster, shortlist())
	must.Len(t, 5, p.Groups[0].Nodes)
	must.StrContains(t, p.Groups[0].Note, "NodeLimitForFeasibilityChecks")
	cluster.NodeLimit = 100
	p = plan(t, newJob("web", 4), cluster, shortlist())
	must.Len(t, 9, p.Groups[0].Nodes)
	must.Eq(t, "", p.Groups[0].Note)
}

// A numa block names device blocks by their names.
func TestNamesThatANumaBlockHasStay(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(2, a10(), a10(), a10())}
	named := func(name string) *api.RequestedDevice {
		d := ask(2)
		d.Name = name
		return d
	}
	for _, c := range []struct {
		numa         []string
		names, want  []string
		withoutBlock bool
	}{
		{numa: []string{allocator.Device}, names: []string{allocator.Device, allocator.Device}, want: []string{allocator.Device, allocator.Device}},
		{numa: []string{"gpu-mem"}, names: []string{"gpu-mem"}, want: []string{"gpu-mem"}},
		{numa: []string{allocator.Device}, names: []string{"gpu-mem", "gpu-mem", allocator.Device}, want: []string{"gpu-mem", "nvidia/gpu-mem/", allocator.Device}},
		{names: []string{allocator.Device, allocator.Device}, want: []string{allocator.Device, "gpu-mem"}},
		{withoutBlock: true, names: []string{allocator.Device, allocator.Device}, want: []string{allocator.Device, "gpu-mem"}},
	} {
		var asks []*api.RequestedDevice
		for _, name := range c.names {
			asks = append(asks, named(name))
		}
		job := newJob("web", 1, asking(asks...))
		if !c.withoutBlock {
			job.TaskGroups[0].Tasks[0].Resources.NUMA = &api.NUMAResource{Affinity: "require", Devices: c.numa}
		}
		p := plan(t, job, cluster, shortlist())
		var names []string
		for _, d := range group(p).Tasks[0].Resources.Devices {
			names = append(names, d.Name)
		}
		must.Eq(t, c.want, names, must.Sprint(c.names, c.numa))
	}
}

// memory_max = -1 removes the limit of a task, and takes no memory of a node.
func TestUnlimitedMemory(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1, a10())}
	job := newJob("web", 1)
	job.TaskGroups[0].Tasks[0].Resources.MemoryMaxMB = ptr(-1)
	p := plan(t, job, cluster, shortlist())
	must.Eq(t, 0, p.Missing())
	must.Eq(t, -1, *group(p).Tasks[0].Resources.MemoryMaxMB)
}
