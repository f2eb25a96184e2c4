// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// short returns the only shortage of a plan.
func short(t *testing.T, p *planner.Plan) planner.Shortage {
	t.Helper()
	must.Len(t, 1, p.Groups[0].Short)
	return p.Groups[0].Short[0]
}

// An ask that no empty node could hold is reported as never fitting.
func TestWhatNeverFits(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: []*structs.Node{nomadtest.Node(0, a10(), a10()), nomadtest.Node(1, h100())}}
	s := short(t, plan(t, newJob("j", 80), cluster, shortlist()))
	must.True(t, s.Never)
	must.Eq(t, `task "main" needs 80 units; the largest GPU that it allows, `+nomadtest.UUID(1, 0)+" on node-1, has 79", s.Why[0])

	must.True(t, short(t, plan(t, newJob("j", 1, asking(ask(20), ask(20), ask(20))), cluster, shortlist())).Never)

	// A GPU that is full now may become free.
	cluster = running(cluster, plan(t, newJob("long", 70), cluster, shortlist()))
	s = short(t, plan(t, newJob("j", 60), cluster, shortlist()))
	must.False(t, s.Never)
	must.StrContains(t, s.Why[0], "the nearest GPU, "+nomadtest.UUID(1, 0))
	must.StrContains(t, s.Why[0], "51 units short")
}

// Of the GPUs that are too full, the one with the most free memory in MiB is named.
func TestNearestGPU(t *testing.T) {
	t.Parallel()
	fine := gpuSpec{Model: "NVIDIA A10", Units: 44, UnitMiB: 512}
	cluster := planner.Cluster{Nodes: []*structs.Node{nomadtest.Node(0, fine), nomadtest.Node(1, a10())}}
	cluster = running(cluster, plan(t, newJob("small", 10, constrained("${meta.rack}", "=", "r0")), cluster, shortlist()))
	cluster = running(cluster, plan(t, newJob("large", 10, constrained("${meta.rack}", "=", "r1")), cluster, shortlist()))
	s := short(t, plan(t, newJob("j", 1, meta(planner.MetaAmount, "whole")), cluster, shortlist()))
	must.StrContains(t, s.Why[0], "the nearest GPU, "+nomadtest.UUID(0, 0))
	must.StrContains(t, s.Why[0], "10 units short") // by 5 GiB, not 10
}

// Asks of one task that do not fit beside each other are reported once, with the key
// that lets them share a GPU.
func TestAsksThatFitOnlyTogether(t *testing.T) {
	t.Parallel()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(2, a10())}
	s := short(t, plan(t, newJob("j", 1, asking(ask(2), ask(2))), cluster, shortlist()))
	must.Len(t, 1, s.Why)
	must.StrContains(t, s.Why[0], `meta gpu_mem_apart = "false"`)
}

// Asks of a waiting task use different GPUs too: Nomad may start it without a replan.
func TestAsksOfWhatWaitsAreApart(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Node(0, a10(), a10()))
	first := newJob("first", 20)
	run(n, plan(t, first, see(t, n, first), shortlist()))
	job := newJob("waits", 1, asking(ask(9), ask(9)))
	p := plan(t, job, see(t, n, job), shortlist())
	must.Eq(t, 1, p.Missing())
	must.SliceEmpty(t, run(n, p))
	n.Finish(n.Allocs()[0].ID)
	started := run(n, p)
	must.Len(t, 1, started)
	gpus := map[string]bool{}
	for _, d := range started[0].AllocatedResources.Tasks["main"].Devices {
		gpus[d.Name] = true
	}
	must.MapLen(t, 2, gpus)
}

// A card has less memory than its nominal size: a plan for a constraint with
// that size reports the largest GPU.
func TestMemoryThatNoGPUHas(t *testing.T) {
	t.Parallel()
	wants := func(target, value string) *api.RequestedDevice {
		device := ask(1)
		device.Constraints = []*api.Constraint{api.NewConstraint(target, ">=", value)}
		return device
	}
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(2, a10(), gpuSpec{Model: "NVIDIA T4", Units: 15, UnitMiB: 1024})}
	s := short(t, plan(t, newJob("j", 1, asking(wants("${device.attr.memory}", "24 GiB"))), cluster, shortlist()))
	must.Eq(t, []string{`2 nodes: no GPU that task "main" allows (the largest has 22528 MiB of memory)`}, s.Why)
	must.Eq(t, 0, plan(t, newJob("j", 1, asking(wants("${device.attr.memory}", "22000 MiB"))), cluster, shortlist()).Missing())
	s = short(t, plan(t, newJob("j", 1, asking(wants("${device.attr.units}", "99"))), cluster, shortlist()))
	must.Eq(t, []string{`2 nodes: no GPU that task "main" allows`}, s.Why)
}
