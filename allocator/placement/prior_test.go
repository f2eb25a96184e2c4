package placement_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// One task that was seen does not mean that all are like it: what it leaves of a
// GPU is still room for others. After many, it does.
func TestAFewTasksDoNotMakeTheDemand(t *testing.T) {
	t.Parallel()
	chosen := func(seen float64) string {
		p := newPlacer(t, placement.DefaultPolicy, newNode("n", 90_000, 18, 24))
		p.Learn([]placement.Class{{Request: share(12), Weight: seen}})
		d, err := p.Choose(share(12))
		must.NoError(t, err)
		return d.Slices[0].GPU
	}
	must.Eq(t, "n-0", chosen(1000), must.Sprint("the rest of n-0 is lost in any case"))
	p := newPlacer(t, placement.DefaultPolicy, newNode("n", 90_000, 18, 24))
	p.Learn(nil)
	_, err := p.Choose(share(12))
	must.NoError(t, err, must.Sprint("a cluster without a history"))
	must.Eq(t, "n-1", chosen(1), must.Sprint("a task for 18 units may yet come"))
}
