// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// see is the cluster as the planner sees it.
func see(t *testing.T, n *nomadtest.Nomad, job *api.Job) planner.Cluster {
	t.Helper()
	c := planner.Cluster{Nodes: n.Nodes(), Allocs: n.Allocs()}
	if registered := n.Job(*job.ID); registered != nil {
		c.Registered = nomadtest.Convert[*api.Job](t, registered)
	}
	return c
}

// run submits a planned job and returns the allocations that Nomad created.
func run(n *nomadtest.Nomad, p *planner.Plan) []*structs.AllocListStub {
	return n.Started(n.Register(p.Job))
}

// How often Nomad's real scheduler follows the plan, with 8 GPUs on every
// node. A shortlist and a hard pin always hold; affinities alone hold as long as
// Nomad scores all nodes.
func TestPinsOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		nodes int
		pin   planner.Pin
		least int // percent
		most  int
	}{
		{90, planner.Soft, 100, 100},
		{90, planner.Shortlist, 100, 100},
		{90, planner.Hard, 100, 100},
		{300, planner.Soft, 10, 70},
		{300, planner.Shortlist, 100, 100},
		{300, planner.Hard, 100, 100},
		{1200, planner.Soft, 0, 30},
		{1200, planner.Shortlist, 100, 100},
		{1200, planner.Hard, 100, 100},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("%d nodes %s", tc.nodes, tc.pin), func(t *testing.T) {
			jobs := 60
			if testing.Short() {
				jobs = 20
			}
			gpu := gpuSpec{Model: "NVIDIA A10", Units: 8, UnitMiB: 1024}
			n := nomadtest.New(t, nomadtest.Nodes(tc.nodes, gpu, gpu, gpu, gpu, gpu, gpu, gpu, gpu)...)
			options := planner.Options{Policy: policy("random"), Pin: tc.pin}
			kept := 0
			for number := range jobs {
				job := newJob(fmt.Sprintf("job-%d", number), 3)
				p := plan(t, job, see(t, n, job), options)
				must.Len(t, 1, p.Groups[0].Places)
				outcome := planner.Compare(p, run(n, p))
				must.Len(t, 1, outcome)
				if outcome[0].AsPlanned {
					kept++
				}
			}
			percent := 100 * kept / jobs
			t.Logf("%d of %d as planned", kept, jobs)
			must.Between(t, tc.least, percent, tc.most)
		})
	}
}

// Several asks of one task go to different GPUs; Nomad alone puts them on one
// more often than not.
func TestAsksApartOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			n := nomadtest.New(t, nomadtest.Nodes(6, a10(), a10(), a10(), a10())...)
			for number := range 10 {
				job := newJob(fmt.Sprintf("job-%d", number), 1, asking(ask(3), ask(5), ask(1)))
				p := plan(t, job, see(t, n, job), planner.Options{Policy: policy("random"), Pin: pin})
				outcome := planner.Compare(p, run(n, p))
				must.Len(t, 1, outcome)
				must.True(t, outcome[0].AsPlanned, must.Sprintf("%+v, planned %+v", outcome, p.Groups[0].Places))
				must.Len(t, 3, outcome[0].GPUs)
			}
		})
	}
}

// A whole GPU is placed beside shared ones, and only where one is free.
func TestWholeGPUOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Node(1, a10(), a10()), nomadtest.Node(2, h100()))
	shared := newJob("shared", 2)
	p := plan(t, shared, see(t, n, shared), shortlist())
	must.Len(t, 1, run(n, p))

	whole := newJob("whole", 1, meta(planner.MetaAmount, "whole"), asking(of("NVIDIA A10")))
	p = plan(t, whole, see(t, n, whole), shortlist())
	must.Eq(t, 22, p.Groups[0].Places[0].Slices[0].Units)
	outcome := planner.Compare(p, run(n, p))
	must.True(t, outcome[0].AsPlanned)
	must.NotEq(t, placeOf(n, t, "shared"), outcome[0].GPUs)
}

// of asks for one GPU of a model.
func of(model string) *api.RequestedDevice {
	a := ask(1)
	a.Constraints = []*api.Constraint{api.NewConstraint("${device.attr.model}", "=", model)}
	return a
}

func placeOf(n *nomadtest.Nomad, t *testing.T, job string) []string {
	t.Helper()
	for _, alloc := range n.Allocs() {
		if alloc.JobID == job {
			for _, task := range alloc.AllocatedResources.Tasks {
				return []string{task.Devices[0].Name}
			}
		}
	}
	t.Fatalf("job %s has no allocation", job)
	return nil
}

// An unchanged job restarts nothing, nor do more instances or a
// new list of nodes. A changed ask is planned again.
func TestRunningAgainOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			options := planner.Options{Policy: policy("best-fit"), Pin: pin, Shortlist: 4}
			n := nomadtest.New(t, nomadtest.Nodes(12, a10(), a10(), a10())...)
			job := newJob("again", 1, asking(ask(3), ask(4)), count(2))
			p := plan(t, job, see(t, n, job), options)
			must.Len(t, 2, run(n, p))

			p = plan(t, job, see(t, n, job), options)
			must.True(t, p.Groups[0].Kept)
			must.SliceEmpty(t, p.Groups[0].Places)
			must.SliceEmpty(t, run(n, p))
			must.Eq(t, 0, n.Job("again").Version) // to Nomad it is the same job

			replan := options
			replan.Replan, replan.Shortlist = true, 8
			p = plan(t, see(t, n, job).Registered, see(t, n, job), replan)
			must.SliceEmpty(t, run(n, p))
			if pin == planner.Shortlist {
				must.Len(t, 8, p.Groups[0].Nodes)
			}

			more := newJob("again", 1, asking(ask(3), ask(4)), count(3))
			p = plan(t, more, see(t, n, more), options)
			must.Len(t, 1, p.Groups[0].Places)
			started := run(n, p)
			must.Len(t, 1, started)
			must.True(t, planner.Compare(p, started)[0].AsPlanned || pin == planner.Soft)

			other := newJob("again", 1, asking(ask(3), ask(4)), count(3), meta("version", "2"))
			p = plan(t, other, see(t, n, other), options)
			must.True(t, p.Groups[0].Kept)
			replaced := run(n, p) // in place of those that run
			must.SliceNotEmpty(t, replaced)
			for _, outcome := range planner.Compare(p, replaced) {
				must.True(t, outcome.AsPlanned)
			}

			larger := newJob("again", 1, asking(ask(6), ask(4)), count(3))
			p = plan(t, larger, see(t, n, larger), options)
			must.False(t, p.Groups[0].Kept)
			must.Len(t, 3, p.Groups[0].Places)
			must.Eq(t, 3, p.Groups[0].Replaces)
			for _, outcome := range planner.Compare(p, run(n, p)) { // one now, the others later
				must.NotEq(t, "", outcome.Alloc)
			}
		})
	}
}

// Nomad chooses among the nodes of a kept group by the preferences of its first plan, which cannot change without a
// restart. An instance on another of these nodes than the expected one is as planned.
func TestMoreInstancesOfAKeptGroupOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	options := planner.Options{Policy: policy("best-fit"), Pin: planner.Shortlist, Shortlist: 4}
	n := nomadtest.New(t, nomadtest.Nodes(12, a10(), a10(), a10())...)
	job := newJob("again", 3)
	must.Len(t, 1, run(n, plan(t, job, see(t, n, job), options)))

	more := newJob("again", 3, count(3))
	options.Policy = policy("spread")
	p := plan(t, more, see(t, n, more), options)
	must.True(t, p.Groups[0].Kept)
	started := run(n, p)
	must.Len(t, 2, started)
	elsewhere := 0
	for _, outcome := range planner.Compare(p, started) {
		must.True(t, outcome.AsPlanned)
		must.SliceContains(t, p.Groups[0].Nodes, outcome.Node)
		if !slices.ContainsFunc(p.Groups[0].Places, func(place planner.Place) bool { return place.Node == outcome.Node }) {
			elsewhere++
		}
	}
	must.Positive(t, elsewhere)
}
