// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	"nomad-gpu-mem/allocator/placement"
)

// Pin is how strictly a group is bound to its planned places.
type Pin string

const (
	// Soft writes affinities only. Nomad scores about a hundred nodes, so in a larger
	// cluster it often misses the planned one.
	Soft Pin = "soft"

	// Shortlist confines the group to the best nodes and prefers the planned
	// ones. Nomad scores all nodes of the list, and takes another one if a node is lost.
	Shortlist Pin = "shortlist"

	// Hard confines the group to the planned nodes and GPUs. If one of them is lost, the
	// group waits until it is planned again.
	Hard Pin = "hard"
)

// Pins lists all pins, the default first.
var Pins = []Pin{Shortlist, Soft, Hard}

// ParsePin returns the pin of that name.
func ParsePin(name string) (Pin, error) {
	if slices.Contains(Pins, Pin(name)) {
		return Pin(name), nil
	}
	return "", fmt.Errorf("invalid pin %q, want %s, %s or %s", name, Shortlist, Soft, Hard)
}

const (
	templateNote = "is started later: Nomad places it then, and nothing is reserved"
	everyNote    = "runs on every node: not bound to nodes, prefers the planned GPUs"
	limitNote    = "shortlist of %d nodes only: Nomad scores no more (NodeLimitForFeasibilityChecks in its scheduler configuration)"
	keptNote     = "keeps its preferences, since a change would restart it: Nomad may choose another of its %d nodes for a new instance"
	waitNote     = "has instances that fit nowhere: not bound to nodes, so that Nomad starts them wherever units become free"
)

// pinWeight is the largest weight that Nomad allows. A job's own affinities and spreads
// count too, so they can still move a task to another node of the list.
const pinWeight = 100

// pin writes the plan of a group into the job.
func (p *planning) pin(w *groupPlan, group *Group) error {
	if w.kept {
		return p.repin(w, group)
	}
	if w.replaces() {
		group.Replaces = min(len(w.live), len(group.Places))
	}
	asked := p.askedPin(w)
	pin := p.choosePin(group, asked)
	if pin != "" && len(group.Places) > 0 {
		others, err := p.others(w, pin)
		if err != nil {
			return err
		}
		group.pinTo(pin, others, p.options.Shortlist)
	}
	p.bind(w, group)
	w.mark(asked)
	return nil
}

// others returns the places of a shortlist besides the planned ones.
func (p *planning) others(w *groupPlan, pin Pin) ([]placement.Decision, error) {
	if pin != Shortlist {
		return nil, nil
	}
	return p.placer.Shortlist(p.request(w), p.options.Shortlist)
}

// pinTo sets the pin and the nodes that it confines the group to: those of its places, and
// others up to the length of a shortlist.
func (g *Group) pinTo(pin Pin, others []placement.Decision, length int) {
	g.Pin = pin
	if pin != Soft {
		g.Nodes = distinct(placesOn(g.Places))
	}
	for _, d := range others {
		g.Nodes = withNode(g.Nodes, d.Node, length)
	}
}

// bind writes the pin of a group, and the limits of its asks, into the job.
func (p *planning) bind(w *groupPlan, group *Group) {
	for i, a := range w.asks {
		a.device.Constraints = append(a.device.Constraints, w.limits[i].constraints()...)
	}
	w.confine(group.Nodes)
	if group.Pin == "" {
		return
	}
	if group.Pin != Hard && !isEverywhere(p.job) {
		w.spec.Affinities = append(w.spec.Affinities, affinities(targetNode, placesOn(group.Places))...)
	}
	for i, a := range w.asks {
		gpus := gpusOf(group.Places, i)
		if group.Pin == Hard {
			a.device.Constraints = append(a.device.Constraints, constraint(targetGPU, distinct(gpus)))
		} else {
			a.device.Affinities = append(a.device.Affinities, affinities(targetGPU, gpus)...)
		}
	}
}

// askedPin returns the requested pin, which the group gets as soon as it fits.
func (p *planning) askedPin(w *groupPlan) Pin {
	switch {
	case slices.ContainsFunc(w.limits, func(l limit) bool { return l.gpus != nil }):
		return Hard // its asks are limited to GPUs, so other nodes do not help
	case p.options.Replan && slices.Contains(Pins, w.was):
		return w.was
	default:
		return p.options.Pin
	}
}

// choosePin returns the pin that the group can have now, "" for none, and notes why it
// differs from the requested one.
func (p *planning) choosePin(group *Group, asked Pin) Pin {
	switch {
	case isTemplate(p.job):
		group.Note = templateNote
		for _, short := range group.Short { // it may fit when it starts
			group.Note += "; now it would fit nowhere: " + strings.Join(short.Why, "; ")
		}
		group.Short = nil
		return ""
	case isEverywhere(p.job):
		group.Note = everyNote
		return Soft
	case len(group.Short) > 0:
		group.Note = waitNote
		return Soft
	case p.cluster.Queue != "" && asked == Shortlist:
		group.Note = queueNote
		return Soft
	case asked == Shortlist && p.limited:
		group.Note = fmt.Sprintf(limitNote, p.options.Shortlist)
		return asked
	default:
		return asked
	}
}

// repin changes only the list of nodes of a running group: any other change would
// restart it.
func (p *planning) repin(w *groupPlan, group *Group) error {
	old := listOf(w.spec)
	group.Pin = w.runningPin(old)
	switch {
	case group.Pin == "":
		return nil // it was never planned
	case isEverywhere(p.job):
		group.Note = everyNote
		return nil
	case len(group.Short) > 0:
		w.confine(nil)
		group.Note = waitNote
		return nil
	case old == nil:
		return nil // it is not confined
	}
	var list []string
	for _, alloc := range slices.Concat(w.live, w.away) {
		list = withNode(list, alloc.NodeID, 0)
	}
	for _, node := range placesOn(group.Places) {
		list = withNode(list, node, 0)
	}
	switch {
	case group.Pin == Shortlist && p.options.Replan:
		best, err := p.placer.Shortlist(p.request(w), p.options.Shortlist)
		if err != nil {
			return err
		}
		for _, d := range best {
			list = withNode(list, d.Node, p.options.Shortlist)
		}
	case len(group.Places) == 0:
		list = old
	default:
		for _, node := range old {
			list = withNode(list, node, 0)
		}
	}
	group.Nodes = list
	if group.Pin == Shortlist && len(group.Places) > 0 {
		group.Note = fmt.Sprintf(keptNote, len(list))
	}
	w.confine(list)
	return nil
}

// runningPin returns the pin of a running group: the requested one, or Soft if it was
// planned while some instances fitted nowhere.
func (w *groupPlan) runningPin(list []string) Pin {
	pin := Pin(w.spec.Meta[MetaPlanned])
	if pin != "" && list == nil {
		return Soft
	}
	return pin
}
