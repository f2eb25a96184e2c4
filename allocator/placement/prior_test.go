// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// If all tasks are for 8 units, the 2 that such a task leaves of 10 are lost. After
// one of them that is not known: a smaller task may come.
func TestAFewTasksDoNotMakeTheDemand(t *testing.T) {
	t.Parallel()
	chosen := func(tell func(p *placement.Placer, classes []placement.Class), seen float64) string {
		p := newPlacer(t, placement.DefaultPolicy, newNode("n", 90_000, 10, 24))
		tell(p, []placement.Class{{Request: share(8), Weight: seen}})
		d, err := p.Choose(share(8))
		must.NoError(t, err)
		return d.Slices[0].GPU
	}
	given, learned := (*placement.Placer).SetDemand, (*placement.Placer).Learn
	must.Eq(t, "n-1", chosen(given, 1))
	must.Eq(t, "n-1", chosen(learned, 1e6))
	must.Eq(t, "n-0", chosen(learned, 1))
}

// Before there is a history, there is a demand.
func TestLearnFromNothing(t *testing.T) {
	t.Parallel()
	for _, nodes := range [][]placement.Node{nil, {newNode("n", 90_000, 18, 24)}, {{ID: "no GPU", CPU: 1000}}} {
		p := newPlacer(t, placement.DefaultPolicy, nodes...)
		p.Learn(nil)
		_, err := p.Choose(placement.Request{CPU: 100})
		if len(nodes) == 0 {
			must.ErrorIs(t, err, placement.ErrNoRoom)
		} else {
			must.NoError(t, err)
		}
	}
}
