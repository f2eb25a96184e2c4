// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// A system job is steered among each node's GPUs.
func TestSystemJobOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, everywhere := range []string{"system", "sysbatch"} {
		t.Run(everywhere, func(t *testing.T) {
			t.Parallel()
			n := nomadtest.New(t, nomadtest.Nodes(8, a10(), a10(), a10(), a10())...)
			job := newJob("everywhere", 1, kind(everywhere), asking(ask(3), ask(5)))
			p := plan(t, job, see(t, n, job), planner.Options{Policy: policy("random"), Pin: planner.Shortlist})
			must.Len(t, 8, p.Groups[0].Places)
			for _, outcome := range planner.Compare(p, run(n, p)) {
				must.True(t, outcome.AsPlanned)
				must.Len(t, 2, outcome.GPUs)
			}
			p = plan(t, job, see(t, n, job), shortlist())
			must.Eq(t, 8, p.Groups[0].Count)
			must.SliceEmpty(t, p.Groups[0].Places)
			must.SliceEmpty(t, run(n, p))
		})
	}
}

// Each start of a periodic or parameterized job gets what its template was given:
// the asks of a task are apart, a whole GPU is whole.
func TestTemplatesOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for name, change := range templates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nomadtest.New(t, nomadtest.Nodes(3, a10(), a10(), a10(), a10())...)
			job := newJob("template", 1, kind("batch"), asking(ask(1), ask(1)), meta(planner.MetaAmount, "whole"), change)
			p := plan(t, job, see(t, n, job), shortlist())
			must.Nil(t, n.Register(p.Job))
			for range 6 {
				started := n.Started(n.Launch("template"))
				must.Len(t, 1, started)
				devices := started[0].AllocatedResources.Tasks["main"].Devices
				must.NotEq(t, devices[0].Name, devices[1].Name)
				must.Len(t, 22, devices[0].DeviceIDs)
				must.Len(t, 22, devices[1].DeviceIDs)
			}
			must.SliceEmpty(t, n.Started(n.Launch("template"))) // 12 GPUs are taken
			p = plan(t, job, see(t, n, job), shortlist())
			must.Nil(t, n.Register(p.Job)) // and its children keep running
			must.Len(t, 6, n.Allocs())
		})
	}
}

// Groups of several tasks, each with several asks and several
// instances.
func TestSeveralGroupsAndTasksOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Nodes(6, a10(), a10(), a10(), a10())...)
	job := newJob("many", 1, asking(ask(3), ask(5)), count(3))
	second := nomadtest.Convert[*api.Task](t, job.TaskGroups[0].Tasks[0])
	second.Name, second.Resources.Devices = "second", []*api.RequestedDevice{ask(2), ask(7), ask(1)}
	job.TaskGroups[0].AddTask(second)
	other := nomadtest.Convert[*api.TaskGroup](t, job.TaskGroups[0])
	other.Name, other.Count = ptr("other"), ptr(2)
	job.AddTaskGroup(other)
	plain := newJob("plain", 1, asking()).TaskGroups[0]
	plain.Name = ptr("plain")
	job.AddTaskGroup(plain)

	p := plan(t, job, see(t, n, job), shortlist())
	must.Eq(t, 0, p.Missing())
	started := run(n, p)
	must.Len(t, 6, started)
	for _, outcome := range planner.Compare(p, started) {
		must.True(t, outcome.AsPlanned, must.Sprintf("%+v, planned %+v", outcome, p.Groups))
	}
	for _, alloc := range started {
		for _, task := range alloc.AllocatedResources.Tasks {
			gpus := map[string]bool{}
			for _, d := range task.Devices {
				gpus[d.Name] = true
			}
			must.MapLen(t, len(task.Devices), gpus)
		}
	}
	must.SliceEmpty(t, run(n, plan(t, job, see(t, n, job), shortlist())))
}

// Asks that may share a GPU do so where that is best.
func TestAsksTogetherOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Nodes(2, a10())...)
	job := newJob("together", 1, asking(ask(9), ask(9)), meta(planner.MetaApart, "false"))
	p := plan(t, job, see(t, n, job), shortlist())
	outcome := planner.Compare(p, run(n, p))
	must.Len(t, 1, outcome)
	must.True(t, outcome[0].AsPlanned)
	must.Len(t, 1, outcome[0].GPUs)
}

func TestBatchJobOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Nodes(300, a10(), a10())...)
	job := newJob("batch", 3, kind("batch"), count(5))
	p := plan(t, job, see(t, n, job), planner.Options{Policy: policy("random"), Pin: planner.Shortlist})
	for _, outcome := range planner.Compare(p, run(n, p)) {
		must.True(t, outcome.AsPlanned)
	}
}

// A batch job that has completed does not run again.
func TestFinishedBatchJobOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := nomadtest.New(t, nomadtest.Nodes(12, a10())...)
	job := newJob("batch", 3, kind("batch"), count(2))
	p := plan(t, job, see(t, n, job), shortlist())
	for _, alloc := range run(n, p) {
		n.Finish(alloc.ID)
	}
	other := shortlist()
	other.Policy, other.Pin = policy("spread"), planner.Hard
	p = plan(t, job, see(t, n, job), other)
	must.True(t, p.Groups[0].Kept)
	must.SliceEmpty(t, run(n, p))
}

// Several instances on several nodes are shared out as planned, also where one
// node gets more of them than another.
func TestUnequalSharesOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for instances := 2; instances <= 9; instances++ {
		n := nomadtest.New(t, nomadtest.Nodes(12, a10(), a10(), a10())...)
		job := newJob("many", 12, count(instances)) // one for each GPU
		p := plan(t, job, see(t, n, job), shortlist())
		for _, outcome := range planner.Compare(p, run(n, p)) {
			must.True(t, outcome.AsPlanned, must.Sprint(instances))
		}
	}
}
