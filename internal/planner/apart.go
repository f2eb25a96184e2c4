// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"cmp"
	"slices"

	"nomad-gpu-mem/allocator/placement"
)

// tasksApart returns the asks of each task that has several to be kept apart.
func (w *wanted) tasksApart() [][]int {
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

// separate keeps asks of one task apart: each gets a range of indexes, around
// that of the GPU which was chosen for it. Asks that no GPU satisfies both need
// no help. MIG instances of one GPU share its index: these go by UUID.
func (p *planning) separate(w *wanted, asks []int, gpus []*placement.GPU) {
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

// bound gives asks the ranges of indexes between borders.
func (w *wanted) bound(asks, borders []int) {
	for n, border := range borders {
		w.limits[asks[n]].below, w.limits[asks[n+1]].from = border, border
	}
}

// evenBorders divide the indexes of the most common kind of node evenly among
// asks. A GPU is then of use to one of the asks only, so this is how most
// instances fit.
func (p *planning) evenBorders(w *wanted, asks []int) []int {
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

// chooseForMany is like Choose of the placer, for a group that will have several
// instances: where there is room, so that its asks divide a node's GPUs evenly.
func (p *planning) chooseForMany(w *wanted) (placement.Decision, error) {
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
func (p *planning) canMeet(w *wanted, asks []int) bool {
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
