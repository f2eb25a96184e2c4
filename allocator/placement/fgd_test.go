// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// The policy fgd must choose what the published rule chooses, written down here
// as it is in the paper: in floating point, for every GPU, without a cache.
func TestFGDAsPublished(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	for round := range 40 {
		var nodes []placement.Node
		for i := range 6 {
			n := placement.Node{ID: fmt.Sprint(i), CPU: 1000 * (4 + random.IntN(60)), MemoryMiB: 1000 * random.IntN(200)}
			for g := range 1 + random.IntN(4) {
				n.GPUs = append(n.GPUs, placement.GPU{
					ID: fmt.Sprint(g), Model: []string{"T4", "A10"}[i%2], UnitMiB: 1, Units: 1000, Free: 50 * random.IntN(21),
				})
			}
			nodes = append(nodes, n)
		}
		demand := publishedDemand()
		policy, err := placement.PolicyNamed("fgd")
		must.NoError(t, err)
		p := placement.New(policy, uint64(round))
		for _, n := range nodes {
			p.SetNode(n)
		}
		p.SetDemand(demand)
		for _, class := range demand {
			want := unfit
			scores := map[string]int{}
			for _, n := range nodes {
				scores[n.ID] = published(n, class.Request, demand)
				want = max(want, scores[n.ID])
			}
			d, err := p.Choose(class.Request)
			if want == unfit {
				must.ErrorIs(t, err, placement.ErrNoRoom)
				continue
			}
			must.NoError(t, err)
			must.Eq(t, want, scores[d.Node], must.Sprintf("round %d, %+v", round, class.Request))
		}
	}
}

func publishedDemand() []placement.Class {
	whole := placement.Ask{Whole: true, Apart: "task"}
	return []placement.Class{
		{Weight: 40, Request: placement.Request{CPU: 8000, MemoryMiB: 16_000, Asks: []placement.Ask{whole}}},
		{Weight: 30, Request: placement.Request{CPU: 4000, MemoryMiB: 8000, Asks: []placement.Ask{{Units: 500}}}},
		{Weight: 20, Request: placement.Request{CPU: 12_000, MemoryMiB: 4000, Asks: []placement.Ask{{Units: 800, Models: []string{"T4"}}}}},
		{Weight: 15, Request: placement.Request{CPU: 2000, MemoryMiB: 4000, Asks: []placement.Ask{{Units: 150}}}},
		{Weight: 10, Request: placement.Request{CPU: 16_000, MemoryMiB: 32_000, Asks: []placement.Ask{whole, whole}}},
		{Weight: 10, Request: placement.Request{CPU: 16_000, MemoryMiB: 32_000}},
		{Weight: 1, Request: placement.Request{CPU: 1, Asks: []placement.Ask{{Units: 50}}}}, // beyond the 95 % that count
	}
}

const unfit = math.MinInt

// published is the best score that the rule gives to a node, or unfit.
func published(n placement.Node, r placement.Request, demand []placement.Class) int {
	best := unfit
	before := fragments(n, demand)
	for g := range max(1, len(n.GPUs)) {
		after, ok := put(n, r, g)
		if !ok {
			continue
		}
		decrease := (before - fragments(after, demand)) / 1000
		best = max(best, int(100/(1+math.Exp(-decrease))))
	}
	return best
}

// put places a share on the g-th GPU, whole GPUs on the first that are free.
func put(n placement.Node, r placement.Request, g int) (placement.Node, bool) {
	n.GPUs = append([]placement.GPU{}, n.GPUs...)
	n.CPU -= r.CPU
	n.MemoryMiB -= r.MemoryMiB
	for _, a := range r.Asks {
		if len(a.Models) > 0 && a.Models[0] != n.GPUs[0].Model {
			return n, false
		}
		if a.Whole {
			for g = 0; g < len(n.GPUs)-1 && n.GPUs[g].Free < 1000; g++ {
			}
			a.Units = 1000
		}
		if n.GPUs[g].Free -= a.Units; n.GPUs[g].Free < 0 {
			return n, false
		}
	}
	return n, n.CPU >= 0 && n.MemoryMiB >= 0
}

// fragments is the paper's F of a node, with the classes that make up 95 %.
func fragments(n placement.Node, demand []placement.Class) float64 {
	var sum, weight float64
	for _, class := range demand[:len(demand)-1] {
		sum += class.Weight * fragmentsTo(n, class.Request)
		weight += class.Weight
	}
	return sum / weight
}

func fragmentsTo(n placement.Node, r placement.Request) float64 {
	var all, slivers float64
	fitting := 0
	for _, g := range n.GPUs {
		all += float64(g.Free)
		need := 1000
		if len(r.Asks) > 0 && !r.Asks[0].Whole {
			need = r.Asks[0].Units
		}
		allowed := len(r.Asks) > 0 && (len(r.Asks[0].Models) == 0 || r.Asks[0].Models[0] == g.Model)
		if allowed && g.Free >= need {
			fitting++
		} else {
			slivers += float64(g.Free)
		}
	}
	if len(r.Asks) == 0 || n.CPU < r.CPU || n.MemoryMiB < r.MemoryMiB || fitting < len(r.Asks) {
		return all
	}
	return slivers
}
