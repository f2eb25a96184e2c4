// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/simulate"
)

// A steered job has the planner's pin, and one that asks for no GPU
// memory has none: the planner leaves it unchanged.
func TestSteeredJobsBearThePlannersPin(t *testing.T) {
	t.Parallel()
	policy, err := placement.PolicyNamed(placement.DefaultPolicy)
	must.NoError(t, err)
	gpus := []placement.GPU{{ID: "gpu-0", UnitMiB: 1, Units: 1000, Free: 1000}, {ID: "gpu-1", UnitMiB: 1, Units: 1000, Free: 1000}}
	trace := &simulate.Trace{Nodes: []placement.Node{{ID: "a", Name: "a", CPU: 64_000, MemoryMiB: 100_000, GPUs: gpus}}}
	contender := Steered(simulate.Steering{Policy: policy, Learned: true}, planner.Shortlist)
	made, err := contender.New(trace, 1)
	must.NoError(t, err)
	scheduler := made.(*nomad)
	submit := func(task simulate.Task) *structs.TaskGroup {
		job, err := scheduler.steer(newJob(0, task), task)
		must.NoError(t, err)
		stored, err := submitted(job)
		must.NoError(t, err)
		return stored.TaskGroups[0]
	}

	whole := placement.Ask{Whole: true, Apart: "task"}
	pinned := submit(simulate.Task{Milli: 2000, Request: placement.Request{CPU: 1, Asks: []placement.Ask{whole, whole}}})
	must.Eq(t, string(planner.Shortlist), pinned.Meta[planner.MetaPlanned])
	for _, ask := range pinned.Tasks[0].Resources.Devices {
		must.Eq(t, "${device.attr.index}", ask.Constraints[0].LTarget) // its half of the node's GPUs
		must.Eq(t, "${device.model}", ask.Affinities[0].LTarget)
	}

	free := submit(simulate.Task{Request: placement.Request{CPU: 1}})
	must.MapNotContainsKey(t, free.Meta, planner.MetaPlanned)
	must.SliceEmpty(t, free.Constraints)
}
