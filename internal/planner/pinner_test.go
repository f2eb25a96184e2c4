// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// A Pinner writes exactly what PlanJob writes, for the places that PlanJob chose.
func TestPinnerWritesWhatPlanJobWrites(t *testing.T) {
	t.Parallel()
	nodes := append(nomadtest.Nodes(3, a10(), a10(), a10()), nomadtest.Node(3, h100(), h100()))
	jobs := map[string]*api.Job{
		"one ask": newJob("one", 3),
		"a model": newJob("model", 1, asking(of("NVIDIA H100"))),
		"own lists": newJob("lists", 3, func(job *api.Job) {
			job.TaskGroups[0].Constrain(api.NewConstraint("${node.unique.id}", "set_contains_any", nodes[0].ID+","+nodes[1].ID))
			job.TaskGroups[0].AddAffinity(api.NewAffinity("${meta.rack}", "=", "r1", 50))
		}),
		"a whole GPU":  newJob("whole", 1, meta(planner.MetaAmount, "whole")),
		"kept apart":   newJob("apart", 1, asking(ask(3), ask(4), ask(5))),
		"three of one": newJob("three", 1, asking(ask(3), ask(4), ask(5)), meta(planner.MetaApart, "false")),
	}
	for name, job := range jobs {
		for _, pin := range planner.Pins {
			t.Run(name+" "+string(pin), func(t *testing.T) {
				t.Parallel()
				options := planner.Options{Policy: policy("best-fit"), Pin: pin}
				made := plan(t, job, planner.Cluster{Nodes: nodes}, options)
				pinned, err := planner.NewPinner(nodes, options).Pin(job, decisions(made.Groups[0]))
				must.NoError(t, err)
				must.Eq(t, made.Job, pinned)
			})
		}
	}
}

// A Pinner returns an error for a job that it cannot pin.
func TestPinnerRefuses(t *testing.T) {
	t.Parallel()
	nodes := []*structs.Node{nomadtest.Node(0, a10())}
	pinner := planner.NewPinner(nodes, shortlist())
	place := []placement.Decision{{Node: nodes[0].ID, Slices: []placement.Slice{{GPU: nomadtest.UUID(0, 0), Units: 1}}}}
	for name, job := range map[string]*api.Job{
		"without asks":  newJob("none", 1, asking()),
		"with two asks": newJob("two", 1, asking(ask(1), ask(2))),
	} {
		_, err := pinner.Pin(job, place)
		must.ErrorIs(t, err, planner.ErrJob, must.Sprint(name))
	}
	_, err := pinner.Pin(newJob("nowhere", 1), nil)
	must.ErrorIs(t, err, planner.ErrJob)
}

// decisions are what placement chose: the place of the only instance, then the other nodes
// of its list.
func decisions(group planner.Group) []placement.Decision {
	place := group.Places[0]
	first := placement.Decision{Node: place.Node}
	for _, s := range place.Slices {
		first.Slices = append(first.Slices, placement.Slice{GPU: s.GPU, Units: s.Units})
	}
	all := []placement.Decision{first}
	for _, node := range group.Nodes {
		if node != place.Node {
			all = append(all, placement.Decision{Node: node})
		}
	}
	return all
}
