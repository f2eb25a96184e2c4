package nomad

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
)

// Pin is what is written into a job to steer the scheduler.
type Pin string

// The pins. Hard leaves no choice. Soft states wishes only, and Nomad looks at
// about 100 nodes for them. Shortlist is soft, on the policy's best nodes.
const (
	Hard      Pin = "hard"
	Soft      Pin = "soft"
	Shortlist Pin = "shortlist"
)

// ParsePin reads the name of a pin.
func ParsePin(name string) (Pin, error) {
	switch pin := Pin(name); pin {
	case Hard, Soft, Shortlist:
		return pin, nil
	}
	return "", fmt.Errorf("there is no pin %q: choose one of %s, %s and %s", name, Hard, Soft, Shortlist)
}

// shortlistLength is how many nodes a shortlist has.
const shortlistLength = 32

// length is how many places the pin needs.
func (p Pin) length() int {
	if p == Shortlist {
		return shortlistLength
	}
	return 1
}

// write steers a job to the first of these places. Nodes bear Nomad's IDs.
func (p Pin) write(job *structs.Job, places []placement.Decision) {
	group := job.TaskGroups[0]
	best := places[0]
	const node = "${node.unique.id}"
	switch p {
	case Hard:
		group.Constraints = append(group.Constraints, &structs.Constraint{LTarget: node, Operand: "=", RTarget: best.Node})
	case Shortlist:
		var nodes []string
		for _, place := range places {
			nodes = append(nodes, place.Node)
		}
		group.Constraints = append(group.Constraints, &structs.Constraint{
			LTarget: node, Operand: structs.ConstraintSetContainsAny, RTarget: strings.Join(nodes, ","),
		})
	}
	if p != Hard {
		group.Affinities = append(group.Affinities, &structs.Affinity{LTarget: node, Operand: "=", RTarget: best.Node, Weight: 100})
	}
	for i, ask := range group.Tasks[0].Resources.Devices {
		gpu := best.Slices[i].GPU
		if p == Hard {
			ask.Name = vendor + "/" + deviceType + "/" + gpu
		} else {
			ask.Affinities = append(ask.Affinities, &structs.Affinity{LTarget: "${device.attr.uuid}", Operand: "=", RTarget: gpu, Weight: 100})
		}
	}
}
