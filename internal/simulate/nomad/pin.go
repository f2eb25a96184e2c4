// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"strings"

	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
)

// places is how many places a pin needs.
func places(p planner.Pin) int {
	if p == planner.Shortlist {
		return planner.DefaultShortlist
	}
	return 1
}

// steer pins a job to the first of these places, as the planner pins jobs that
// are submitted. Nodes bear Nomad's IDs.
func steer(job *structs.Job, p planner.Pin, places []placement.Decision) {
	group := job.TaskGroups[0]
	best := places[0]
	const node = "${node.unique.id}"
	switch p {
	case planner.Hard:
		group.Constraints = append(group.Constraints, &structs.Constraint{LTarget: node, Operand: "=", RTarget: best.Node})
	case planner.Shortlist:
		var nodes []string
		for _, place := range places {
			nodes = append(nodes, place.Node)
		}
		group.Constraints = append(group.Constraints, &structs.Constraint{
			LTarget: node, Operand: structs.ConstraintSetContainsAny, RTarget: strings.Join(nodes, ","),
		})
	}
	if p != planner.Hard {
		group.Affinities = append(group.Affinities, &structs.Affinity{LTarget: node, Operand: "=", RTarget: best.Node, Weight: 100})
	}
	for i, ask := range group.Tasks[0].Resources.Devices {
		gpu := best.Slices[i].GPU
		if p == planner.Hard {
			ask.Name = vendor + "/" + deviceType + "/" + gpu
		} else {
			ask.Affinities = append(ask.Affinities, &structs.Affinity{LTarget: "${device.attr.uuid}", Operand: "=", RTarget: gpu, Weight: 100})
		}
	}
}
