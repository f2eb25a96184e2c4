// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"cmp"
	"slices"

	"nomad-gpu-mem/allocator/placement"
)

// tasksApart returns the asks of each task with several asks that must use different GPUs.
func (w *groupPlan) tasksApart() [][]int {
	var all [][]int
	for i, a := range w.asks {
		switch {
		case !a.apart:
		case len(all) > 0 && w.asks[all[len(all)-1][0]].task == a.task:
			all[len(all)-1] = append(all[len(all)-1], i)
		default:
			all = append(all, []int{i})
		}
	}
	return slices.DeleteFunc(all, func(asks []int) bool { return len(asks) < 2 })
}

// separate makes the asks of one task use different GPUs: each ask gets a range of GPU
// indexes around its chosen GPU. It does nothing if no GPU satisfies two of the asks. MIG
// instances of one GPU share its index, so asks for these are limited to a UUID.
func (p *planning) separate(w *groupPlan, asks []int, gpus []*placement.GPU) {
	if !p.canMeet(w, asks) {
		return
	}
	index := func(i int) int { return numberOf(gpus[i].Data.(*gpuData).device, "index") }
	even := p.evenBorders(w, asks)
	slices.SortFunc(asks, func(a, b int) int { return cmp.Compare(index(a), index(b)) })
	for n := 1; n < len(asks); n++ {
		if index(asks[n-1]) == index(asks[n]) {
			for _, i := range asks {
				w.limits[i].gpus = []string{gpus[i].ID}
			}
			return
		}
	}
	borders := make([]int, len(asks)-1)
	for n := range borders {
		borders[n] = min(max(even[n], index(asks[n])+1), index(asks[n+1]))
	}
	w.bound(asks, borders)
}

// bound limits asks to the ranges of indexes between borders.
func (w *groupPlan) bound(asks, borders []int) {
	for n, border := range borders {
		w.limits[asks[n]].below, w.limits[asks[n+1]].from = border, border
	}
}

// evenBorders divides the GPU indexes of the most common kind of node evenly among
// the asks. Each GPU then serves one of the asks only, so an even division fits the
// most instances.
func (p *planning) evenBorders(w *groupPlan, asks []int) []int {
	nodes := map[int]int{} // by number of GPUs
	common := len(asks)
	for _, n := range p.cluster.Nodes {
		node, known := p.placer.Node(n.ID)
		if gpus := len(node.GPUs); known && gpus >= len(asks) && w.judge.node(n) == "" {
			if nodes[gpus]++; nodes[gpus] > nodes[common] || nodes[gpus] == nodes[common] && gpus > common {
				common = gpus
			}
		}
	}
	borders := make([]int, len(asks)-1)
	for n := range borders {
		borders[n] = (n + 1) * common / len(asks)
	}
	return borders
}

// chooseForMany is the placer's Choose for a group of several instances: if it can, it
// chooses GPUs so that the asks divide a node's GPUs evenly.
func (p *planning) chooseForMany(w *groupPlan) (placement.Decision, error) {
	for _, asks := range w.tasksApart() {
		if p.canMeet(w, asks) {
			w.bound(asks, p.evenBorders(w, asks))
		}
	}
	d, err := p.placer.Choose(p.request(w))
	for i := range w.limits {
		w.limits[i].from, w.limits[i].below = 0, 0
	}
	if err == nil {
		return d, nil
	}
	return p.placer.Choose(p.request(w))
}

// canMeet reports whether some GPU satisfies two of the asks.
func (p *planning) canMeet(w *groupPlan, asks []int) bool {
	for _, n := range p.cluster.Nodes {
		if n.NodeResources == nil {
			continue
		}
		for _, d := range n.NodeResources.Devices {
			satisfied := 0
			for _, i := range asks {
				if w.judge.gpu(d, w.asks[i].device) {
					satisfied++
				}
			}
			if satisfied > 1 {
				return true
			}
		}
	}
	return false
}
