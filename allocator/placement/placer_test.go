// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// Cached scores must be those of a Placer that has just been made: whatever
// changed, in whatever order, both decide alike.
func TestScoresAreNeverStale(t *testing.T) {
	t.Parallel()
	for _, policy := range placement.Policies() {
		if policy.Ties == placement.TiesRandom {
			continue
		}
		t.Run(policy.Name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(3, 4))
			var ids []string
			p := newPlacer(t, policy.Name)
			add := func() {
				n := newNode(fmt.Sprint("node-", random.IntN(12)), 10_000+random.IntN(40_000), random.IntN(25), random.IntN(25))
				if _, known := p.Node(n.ID); !known {
					ids = append(ids, n.ID)
				}
				n.GPUs[random.IntN(2)].Units += 2 * random.IntN(2)
				p.SetNode(n)
			}
			for range 6 {
				add()
			}
			var placed []placement.Decision
			for range 300 {
				switch random.IntN(10) {
				case 0:
					add()
					placed = nil // a node may have been replaced
				case 1:
					if len(placed) > 0 {
						must.NoError(t, p.Remove(placed[0]))
						placed = placed[1:]
					}
				}
				r := demand()[random.IntN(5)].Request
				fresh := newPlacer(t, policy.Name)
				for _, id := range ids {
					n, _ := p.Node(id)
					fresh.SetNode(n)
				}
				got, err := p.Choose(r)
				want, wantErr := fresh.Choose(r)
				must.True(t, errors.Is(err, wantErr))
				must.Eq(t, want, got)
				if err == nil {
					must.NoError(t, p.Place(got))
					placed = append(placed, got)
				}
			}
		})
	}
}

func TestSeedDecides(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		policy, err := placement.PolicyNamed("random")
		must.NoError(t, err)
		p := placement.New(policy, seed)
		for i := range 20 {
			p.SetNode(newNode(fmt.Sprint("node-", i), 90_000, 24, 24))
		}
		text := ""
		for range 20 {
			d, err := p.Choose(share(2))
			must.NoError(t, err)
			must.NoError(t, p.Place(d))
			text += d.Slices[0].GPU + " "
		}
		return text
	}
	must.Eq(t, run(1), run(1))
	must.NotEq(t, run(1), run(2))
}

func TestPlaceRefusesWhatIsGone(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, "best-fit", newNode("n", 5000, 10, 10))
	two := placement.Request{CPU: 3000, Asks: []placement.Ask{{Units: 6, Apart: "x"}, {Units: 8, Apart: "x"}}}
	d, err := p.Choose(two)
	must.NoError(t, err)
	must.NoError(t, p.Place(d))
	before, _ := p.Node("n")

	must.ErrorContains(t, p.Place(d), "CPU 2000")
	d.CPU = 0
	must.ErrorContains(t, p.Place(d), "units free")
	now, _ := p.Node("n")
	must.Eq(t, before, now, must.Sprint("a refused placement changes nothing"))

	d.Node = "other"
	must.ErrorContains(t, p.Place(d), "unknown node other")
}

func TestNodeThatIsOut(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, placement.DefaultPolicy, newNode("n", 5000, 24))
	out := newNode("n", 5000, 24)
	out.Out = "the node is drained"
	p.SetNode(out)
	_, err := p.Choose(share(1))
	must.ErrorIs(t, err, placement.ErrNoRoom)
	p.SetNode(newNode("n", 5000, 24))
	_, err = p.Choose(share(1))
	must.NoError(t, err)
}

func TestFits(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, "sequential", newNode("a", 5000, 24, 24), newNode("b", 5000, 24, 24))
	r := share(1)
	r.Fits = func(n *placement.Node) string {
		if n.ID == "a" {
			return "the job wants b"
		}
		return ""
	}
	r.Asks[0].Fits = func(g *placement.GPU) bool { return g.ID == "b-1" }
	d, err := p.Choose(r)
	must.NoError(t, err)
	must.Eq(t, "b-1", d.Slices[0].GPU)
	d, err = p.Choose(share(1))
	must.NoError(t, err)
	must.Eq(t, "a-0", d.Slices[0].GPU, must.Sprint("conditions are one request's"))
}

func TestShortlist(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, "best-fit", newNode("a", 9000, 24), newNode("b", 9000, 8), newNode("c", 9000, 12), newNode("d", 9000, 4))
	list, err := p.Shortlist(share(8), 2)
	must.NoError(t, err)
	must.Len(t, 2, list)
	must.Eq(t, []string{"b", "c"}, []string{list[0].Node, list[1].Node})
	must.Greater(t, list[1].Score, list[0].Score)
}
