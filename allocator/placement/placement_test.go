// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// unit is 1 GiB: GPUs of these tests are divided like real ones.
const unit = 1024

// newNode has GPUs with these free units, out of 24 each.
func newNode(id string, cpu int, free ...int) placement.Node {
	n := placement.Node{ID: id, Name: "name of " + id, CPU: cpu, MemoryMiB: 64_000}
	for i, f := range free {
		n.GPUs = append(n.GPUs, placement.GPU{ID: fmt.Sprintf("%s-%d", id, i), Model: "A10", UnitMiB: unit, Units: 24, Free: f})
	}
	return n
}

func newPlacer(t *testing.T, policy string, nodes ...placement.Node) *placement.Placer {
	t.Helper()
	p, err := placement.PolicyNamed(policy)
	must.NoError(t, err)
	placer := placement.New(p, 7)
	for _, n := range nodes {
		placer.SetNode(n)
	}
	placer.SetDemand(demand())
	return placer
}

func demand() []placement.Class {
	return []placement.Class{
		{Request: share(12), Weight: 5},
		{Request: share(8), Weight: 3},
		{Request: share(4), Weight: 2},
		{Request: placement.Request{CPU: 4000, Asks: []placement.Ask{{Whole: true}}}, Weight: 2},
		{Request: placement.Request{CPU: 4000}, Weight: 1},
	}
}

func share(units int) placement.Request {
	return placement.Request{CPU: 2000, MemoryMiB: 1000, Asks: []placement.Ask{{Units: units}}}
}

// Every policy returns a place that fits, takes it and releases it, until there
// is room no more. Totals never go out of bounds: Place would fail.
func TestPoliciesFillAndEmpty(t *testing.T) {
	t.Parallel()
	for _, policy := range placement.Policies() {
		t.Run(policy.Name, func(t *testing.T) {
			t.Parallel()
			var nodes []placement.Node
			for i := range 20 {
				nodes = append(nodes, newNode(fmt.Sprint("node-", i), 50_000, 24, 24, 17, 3))
			}
			p := newPlacer(t, policy.Name, nodes...)
			random := rand.New(rand.NewPCG(1, 2))
			var placed []placement.Decision
			for refused := 0; refused < 50; {
				r := demand()[random.IntN(5)].Request
				d, err := p.Choose(r)
				if err != nil {
					must.ErrorIs(t, err, placement.ErrNoRoom)
					refused++
					continue
				}
				must.NoError(t, p.Place(d))
				placed = append(placed, d)
			}
			must.Greater(t, 60, len(placed))
			for _, d := range placed {
				must.NoError(t, p.Remove(d))
			}
			for _, n := range nodes {
				now, known := p.Node(n.ID)
				must.True(t, known)
				must.Eq(t, n, now)
			}
		})
	}
}

func TestPolicyChoices(t *testing.T) {
	t.Parallel()
	nodes := []placement.Node{
		newNode("a", 50_000, 24, 24),
		newNode("b", 50_000, 24, 9),
		newNode("c", 50_000, 12, 2),
	}
	tests := []struct {
		policy string
		node   string
		gpu    string
	}{
		{policy: "sequential", node: "a", gpu: "a-0"},
		{policy: "spread", node: "a", gpu: "a-0"},
		{policy: "pack", node: "c", gpu: "c-0"},
		{policy: "best-fit", node: "b", gpu: "b-1"},
		{policy: "fgd", node: "b", gpu: "b-1"},
		{policy: "least-waste", node: "b", gpu: "b-1"},
	}
	for _, test := range tests {
		t.Run(test.policy, func(t *testing.T) {
			t.Parallel()
			d, err := newPlacer(t, test.policy, nodes...).Choose(share(8))
			must.NoError(t, err)
			must.Eq(t, test.node, d.Node)
			must.Eq(t, []placement.Slice{{GPU: test.gpu, Units: 8}}, d.Slices)
		})
	}
}

func TestBalancedWeights(t *testing.T) {
	t.Parallel()
	nodes := []placement.Node{
		newNode("even", 50_000, 12, 12, 24, 24), // stays the more even, is the fuller
		newNode("empty", 50_000, 24, 24, 24, 24),
	}
	choose := func(overNodes, overGPUs, future float64) string {
		policy, err := placement.PolicyNamed("balanced")
		must.NoError(t, err)
		policy.Weights = placement.Balanced(overNodes, overGPUs, future)
		p := placement.New(policy, 1)
		p.SetDemand(demand())
		for _, n := range nodes {
			p.SetNode(n)
		}
		d, err := p.Choose(share(12))
		must.NoError(t, err)
		return d.Slices[0].GPU
	}
	must.Eq(t, "empty-0", choose(1, 0, 0))
	must.Eq(t, "even-2", choose(-1, 1, 0))
	must.Eq(t, "even-0", choose(0, 0, 1), must.Sprint("it leaves three GPUs for whole-GPU tasks or none to waste"))
}

// A third and a half of a GPU leave a sixth that no task will fill. What fills
// what is left later is better, even if it means to begin a GPU.
func TestMismatchesAreAvoided(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, placement.DefaultPolicy, newNode("n", 90_000, 12, 24))
	p.SetDemand([]placement.Class{{Request: share(12), Weight: 1}, {Request: share(8), Weight: 1}})
	for _, want := range []struct {
		units int
		gpu   string
	}{{8, "n-1"}, {12, "n-0"}, {8, "n-1"}, {8, "n-1"}} {
		d, err := p.Choose(share(want.units))
		must.NoError(t, err)
		must.Eq(t, want.gpu, d.Slices[0].GPU)
		must.NoError(t, p.Place(d))
	}
}

// Policies that look at the future keep CPU beside free GPUs.
func TestCPUIsNotStranded(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, placement.DefaultPolicy, newNode("scarce", 10_000, 24), newNode("ample", 90_000, 24))
	d, err := p.Choose(placement.Request{CPU: 9000, Asks: []placement.Ask{{Units: 12}}})
	must.NoError(t, err)
	must.Eq(t, "ample", d.Node)
}

// A task that may run anywhere leaves the GPUs alone that others must have.
func TestScarceModelsAreKept(t *testing.T) {
	t.Parallel()
	rare := newNode("rare", 50_000, 24)
	rare.GPUs[0].Model = "H100"
	p := newPlacer(t, placement.DefaultPolicy, rare, newNode("common", 50_000, 24))
	needsRare := share(12)
	needsRare.Asks[0].Models = []string{"H100"}
	p.SetDemand(append(demand(), placement.Class{Request: needsRare, Weight: 5}))
	d, err := p.Choose(share(12))
	must.NoError(t, err)
	must.Eq(t, "common", d.Node)
	d, err = p.Choose(needsRare)
	must.NoError(t, err)
	must.Eq(t, "rare", d.Node)
}

func TestSeveralAsks(t *testing.T) {
	t.Parallel()
	three := []placement.Ask{{Units: 4, Apart: "task"}, {Units: 10, Apart: "task"}, {MiB: 3*unit + 1}}
	tests := []struct {
		name string
		node placement.Node
		asks []placement.Ask
		want []placement.Slice // nil: no room
	}{
		{name: "apart", node: newNode("n", 9000, 24, 24), asks: three[:2], want: []placement.Slice{{GPU: "n-1", Units: 4}, {GPU: "n-0", Units: 10}}},
		{name: "no second GPU", node: newNode("n", 9000, 24, 3), asks: three[:2]},
		{name: "largest first", node: newNode("n", 9000, 10, 4), asks: three[:2], want: []placement.Slice{{GPU: "n-1", Units: 4}, {GPU: "n-0", Units: 10}}},
		{name: "rounded up to units", node: newNode("n", 9000, 4), asks: three[2:], want: []placement.Slice{{GPU: "n-0", Units: 4}}},
		{name: "beside the others", node: newNode("n", 9000, 14, 4), asks: three, want: []placement.Slice{{GPU: "n-1", Units: 4}, {GPU: "n-0", Units: 10}, {GPU: "n-0", Units: 4}}},
		{name: "whole beside shared", node: newNode("n", 9000, 24, 24), asks: []placement.Ask{{Units: 24}, {Whole: true}}, want: []placement.Slice{{GPU: "n-1", Units: 24}, {GPU: "n-0", Units: 24}}},
		{name: "whole, but in use", node: newNode("n", 9000, 23, 23), asks: []placement.Ask{{Whole: true}}},
		{name: "larger than any", node: newNode("n", 9000, 24), asks: []placement.Ask{{Units: 25}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d, err := newPlacer(t, "sequential", test.node).Choose(placement.Request{CPU: 1000, Asks: test.asks})
			if test.want == nil {
				must.ErrorIs(t, err, placement.ErrNoRoom)
				return
			}
			must.NoError(t, err)
			must.Eq(t, test.want, d.Slices)
		})
	}
}

// A choice that seems good must be given up if it leaves the rest nowhere to go.
func TestAsksAreSearched(t *testing.T) {
	t.Parallel()
	node := newNode("n", 9000, 24, 24, 24)
	node.GPUs[2].Model = "T4"
	asks := []placement.Ask{
		{Units: 20, Apart: "x"},
		{Units: 8, Apart: "x", Models: []string{"A10"}},
		{Units: 6, Apart: "x", Models: []string{"A10"}},
	}
	d, err := newPlacer(t, "sequential", node).Choose(placement.Request{Asks: asks})
	must.NoError(t, err)
	must.Eq(t, "n-2", d.Slices[0].GPU)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]placement.Request{
		"nothing asked":  {Asks: []placement.Ask{{}}},
		"two amounts":    {Asks: []placement.Ask{{Units: 1, MiB: 1}}},
		"negative":       {Asks: []placement.Ask{{Units: -1}}},
		"negative CPU":   {CPU: -1},
		"too many asks":  {Asks: make([]placement.Ask, 65)},
		"whole and part": {Asks: []placement.Ask{{Whole: true, Units: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newPlacer(t, "random", newNode("n", 1)).Choose(r)
			must.ErrorIs(t, err, placement.ErrBadRequest)
		})
	}
}

// A GPU that is unavailable for any reason is never chosen, and causes no error.
func TestOddGPUs(t *testing.T) {
	t.Parallel()
	for name, odd := range map[string]placement.GPU{
		"not divided": {ID: "odd", Model: "A10"},
		"overdrawn":   {ID: "odd", Model: "A10", UnitMiB: unit, Units: 24, Free: -2},
		"out":         {ID: "odd", Model: "A10", UnitMiB: unit, Units: 24, Free: 24, Out: "it is unhealthy"},
	} {
		for _, policy := range placement.Policies() {
			t.Run(name+"/"+policy.Name, func(t *testing.T) {
				t.Parallel()
				node := newNode("n", 50_000, 24)
				node.GPUs = append([]placement.GPU{odd}, node.GPUs...)
				p := newPlacer(t, policy.Name, node)
				for _, a := range []placement.Ask{{Units: 3}, {MiB: 3000}, {Whole: true}} {
					d, err := p.Choose(placement.Request{Asks: []placement.Ask{a}})
					must.NoError(t, err)
					must.Eq(t, "n-0", d.Slices[0].GPU)
				}
			})
		}
	}
}

func TestPolicyNamed(t *testing.T) {
	t.Parallel()
	_, err := placement.PolicyNamed("worst")
	must.ErrorContains(t, err, "least-waste, most-use, fgd, best-fit")
	must.Eq(t, placement.DefaultPolicy, placement.Policies()[0].Name)
}
