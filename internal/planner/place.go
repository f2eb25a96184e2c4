// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
)

// plan finds places for the instances of a group and pins it to them.
func (p *planning) plan(w *groupPlan) (Group, error) {
	group := Group{Name: *w.spec.Name, Count: *w.spec.Count, Kept: w.kept, Places: []Place{}}
	if isEverywhere(p.job) {
		return group, p.everywhere(w, &group)
	}
	want := *w.spec.Count
	if w.kept {
		want -= len(w.live)
	} else if canaries := w.canaries(); canaries > 0 {
		want = canaries
	}
	for missing := want; missing > 0; missing-- {
		place, err := p.place(w, len(group.Places) == 0)
		if errors.Is(err, placement.ErrNoRoom) {
			group.Short = append(group.Short, p.shortage(w, missing))
			break
		}
		if err != nil {
			return group, err
		}
		group.Places = append(group.Places, place)
	}
	if len(group.Places) == 0 && !w.kept {
		if err := p.settleUnplaced(w); err != nil {
			return group, err
		}
	}
	return group, p.pin(w, &group)
}

// place takes the best place for one more instance.
func (p *planning) place(w *groupPlan, first bool) (Place, error) {
	choose := func(w *groupPlan) (placement.Decision, error) { return p.placer.Choose(p.request(w)) }
	if first && !w.kept && (*w.spec.Count > 1 || isTemplate(p.job)) {
		choose = p.chooseForMany
	}
	d, err := choose(w)
	if err != nil {
		return Place{}, err
	}
	if first && !w.kept {
		p.settle(w, d)
	}
	all, err := p.placer.Shortlist(p.request(w), 0)
	if err != nil {
		return Place{}, err
	}
	return p.take(w, d, len(all))
}

// take applies a decision to the picture and describes it as a Place.
func (p *planning) take(w *groupPlan, d placement.Decision, of int) (Place, error) {
	if err := p.placer.Place(d); err != nil {
		return Place{}, err
	}
	p.used = append(p.used, use{node: d.Node, group: *w.spec.Name})
	node, _ := p.placer.Node(d.Node)
	place := Place{Node: d.Node, NodeName: node.Name}
	place.Why = fmt.Sprintf("%s of %d nodes with enough free units, by %s", rank(of), of, p.options.Policy.Name)
	if of == 1 {
		place.Why = "the only node with enough free units"
	}
	for i, s := range d.Slices {
		gpu := p.gpu(d.Node, s.GPU)
		place.Slices = append(place.Slices, Slice{
			Task: w.asks[i].task.Name, GPU: s.GPU, Index: numberOf(gpu.Data.(*gpuData).device, "index"), Model: gpu.Model,
			Units: s.Units, UnitMiB: uint64(gpu.UnitMiB), MiB: uint64(s.Units * gpu.UnitMiB), Left: gpu.Free, Of: gpu.Units,
		})
	}
	return place, nil
}

func rank(of int) string {
	if of == 2 {
		return "better"
	}
	return "best"
}

// request returns the placement request of one instance.
func (p *planning) request(w *groupPlan) placement.Request {
	r := placement.Request{Fits: func(n *placement.Node) string {
		if p.shares(n.ID, w.spec) {
			return "has an instance already, and the job requires distinct hosts"
		}
		return w.judge.node(n.Data.(*structs.Node))
	}}
	r.CPU, r.MemoryMiB = groupSize(w.spec)
	for i, a := range w.asks {
		ask := placement.Ask{
			Fits: func(g *placement.GPU) bool {
				return w.limits[i].allows(g) && w.judge.gpu(g.Data.(*gpuData).device, a.device)
			},
		}
		switch {
		case a.need.Whole:
			ask.Whole = true
		case a.need.MiB > 0 && w.limits[i].unitMiB == 0 && !w.kept:
			ask.MiB = int(a.need.MiB)
		default:
			ask.Units = w.count(i)
		}
		if a.apart {
			ask.Apart = a.task.Name
		}
		r.Asks = append(r.Asks, ask)
	}
	return r
}

// count returns the count of an ask's device block.
func (w *groupPlan) count(i int) int { return int(min(*w.asks[i].device.Count, maxUnits)) }

func (w *groupPlan) setCount(i, units int) {
	count := uint64(units)
	w.asks[i].device.Count = &count
}

// gpu returns a GPU of the picture.
func (p *planning) gpu(nodeID, uuid string) *placement.GPU {
	node, _ := p.placer.Node(nodeID)
	for i := range node.GPUs {
		if node.GPUs[i].ID == uuid {
			return &node.GPUs[i]
		}
	}
	return nil
}
