// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
)

// Pinner pins jobs to places that the caller chose. It writes the same pins as PlanJob, so a
// measurement of Nomad's scheduler with a Pinner measures the planner's pins.
type Pinner struct {
	cluster Cluster
	options Options
	placer  *placement.Placer // holds the nodes' GPUs; chooses no places
}

// NewPinner returns a Pinner for a cluster of these nodes.
func NewPinner(nodes []*structs.Node, options Options) *Pinner {
	cluster := Cluster{Nodes: nodes}
	empty := ""
	placer := newPlacer(&api.Job{Namespace: &empty, ID: &empty}, cluster, options, nil)
	return &Pinner{cluster: cluster, options: options, placer: placer}
}

// Pin returns the job with Nomad's defaults, pinned to the first place; the others fill a
// shortlist. The job must have one group of one instance, and each place one slice per
// device block that asks for GPU memory.
func (p *Pinner) Pin(job *api.Job, places []placement.Decision) (*api.Job, error) {
	pinned, err := canonical(job)
	if err != nil {
		return nil, err
	}
	plan, err := readPlanning(pinned, p.cluster, p.options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJob, err)
	}
	if len(plan.groups) != 1 || len(places) == 0 || len(places[0].Slices) != len(plan.groups[0].asks) {
		return nil, fmt.Errorf("%w: %d groups ask for GPU memory and there are %d places, want one group and a slice for each of its asks",
			ErrJob, len(plan.groups), len(places))
	}
	plan.placer = p.placer
	w, best := plan.groups[0], places[0]
	plan.settle(w, best)
	place := Place{Node: best.Node}
	for _, s := range best.Slices {
		place.Slices = append(place.Slices, Slice{GPU: s.GPU})
	}
	group := Group{Places: []Place{place}}
	asked := plan.askedPin(w)
	var others []placement.Decision
	if asked == Shortlist {
		others = places[1:]
	}
	group.pinTo(asked, others, plan.options.Shortlist)
	plan.bind(w, &group)
	w.mark(asked)
	return pinned, nil
}
