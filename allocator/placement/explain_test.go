// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"fmt"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	down, other := newNode("down", 9000, 24), newNode("other", 9000, 24)
	down.Out = "the node is drained"
	other.GPUs[0].Model = "T4"
	p := newPlacer(t, placement.DefaultPolicy,
		newNode("good", 9000, 24, 8), newNode("also good", 9000, 24),
		newNode("full", 9000, 3, 5), newNode("nearly", 9000, 7, 2), newNode("busy", 500, 24), newNode("bare", 9000),
		down, other, newNode("unwanted", 9000, 24))
	r := placement.Request{CPU: 1000, MemoryMiB: 65_000, Asks: []placement.Ask{{Units: 8, Models: []string{"A10"}}}}
	r.Fits = func(n *placement.Node) string {
		if n.ID == "unwanted" {
			return "constraint datacenter = west"
		}
		return ""
	}
	e, err := p.Explain(r)
	must.NoError(t, err)
	must.SliceEmpty(t, e.Fit)
	r.MemoryMiB = 1000
	e, err = p.Explain(r)
	must.NoError(t, err)

	must.Len(t, 2, e.Fit)
	must.Eq(t, "name of "+e.Fit[0].Node, e.Fit[0].Name)
	best, err := p.Choose(r)
	must.NoError(t, err)
	must.Eq(t, best, e.Fit[0].Decision)
	for _, candidate := range e.Fit {
		sum := int64(0)
		for _, term := range candidate.Terms {
			sum += term.Points
		}
		must.Eq(t, candidate.Score, sum, must.Sprint("the terms make up the score"))
	}

	want := map[string]string{
		"full":     "[GPU memory: 8 units of model A10 wanted, 5120 MiB free on the GPU that comes nearest]",
		"nearly":   "[GPU memory: 8 units of model A10 wanted, 7168 MiB free on the GPU that comes nearest]",
		"busy":     "[CPU: 1000 wanted, 500 free]",
		"bare":     "[it has no GPU]",
		"down":     "[the node is drained]",
		"other":    "[none of its GPUs can be had: 8 units of model A10 wanted]",
		"unwanted": "[constraint datacenter = west]",
	}
	got := map[string]string{}
	for _, refusal := range e.Out {
		got[refusal.Node] = fmt.Sprint(refusal.Reasons)
	}
	must.Eq(t, want, got)
	must.Eq(t, []string{"busy", "nearly", "full"}, []string{e.Out[0].Node, e.Out[1].Node, e.Out[2].Node})
	must.Eq(t, placement.Shortage{GPUMiB: 1024}, e.Out[1].Short)
}

func TestExplainTogether(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, "pack", newNode("n", 9000, 24, 3))
	e, err := p.Explain(placement.Request{Asks: []placement.Ask{{Units: 8, Apart: "x"}, {Units: 8, Apart: "x"}}})
	must.NoError(t, err)
	must.Eq(t, []string{"GPU memory: there is room for each of the 2 asks, but not for all together"}, e.Out[0].Reasons)
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
