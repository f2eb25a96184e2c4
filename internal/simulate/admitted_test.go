// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

func TestAdmissionBySize(t *testing.T) {
	t.Parallel()
	var a admission
	for _, arrival := range []struct {
		milli    int
		admitted bool
	}{{0, true}, {0, false}, {500, true}, {1000, true}, {1000, false}, {2000, false}, {4000, true}} {
		a.count(Task{Milli: arrival.milli}, arrival.admitted)
	}
	figures := a.figures()
	must.Len(t, len(admissionFigures()), figures)
	must.InDelta(t, 100*5500/8500.0, figures[0], 1e-9, must.Sprint("tasks without a GPU ask for no GPU work"))
	must.Eq(t, []float64{50, 100, 50, 100 * 4.0 / 6}, figures[1:5])
	must.True(t, math.IsNaN(figures[5]), must.Sprint("none arrived"))
}

// A seed decides the sample, which has the nodes and the tasks that it should.
func TestSample(t *testing.T) {
	t.Parallel()
	trace := newTrace(t)
	small, err := trace.Sample(Sample{Nodes: 1, GPUs: 4}, 1)
	must.NoError(t, err)
	must.Len(t, 1, small.Nodes)
	must.Eq(t, "node-2", small.Nodes[0].ID)
	must.Len(t, 6, small.Tasks, must.Sprint("all but the one for T4 and P100"))
	classes := small.Classes()
	must.Len(t, 5, classes)
	must.Eq(t, 2, classes[1].Weight)

	whole, err := trace.Sample(Sample{}, 1)
	must.NoError(t, err)
	must.Eq(t, trace, whole)
	_, err = trace.Sample(Sample{Nodes: 2, GPUs: 4}, 1)
	must.ErrorContains(t, err, "cannot draw 2")
}

// What all seeds share cancels out in paired differences.
func TestDifferencesArePaired(t *testing.T) {
	t.Parallel()
	row := func(values ...float64) (r Row) {
		for _, v := range values {
			r.Results = append(r.Results, Result{Figures: []float64{v}})
		}
		return r
	}
	mean, standardError := row(11, 52, 93, math.NaN()).Minus(row(10, 50, 90, 1), 0)
	must.InDelta(t, 2, mean, 1e-9)
	must.InDelta(t, 1/math.Sqrt(3), standardError, 1e-9)
	mean, _ = row(math.NaN()).Minus(row(1), 0)
	must.True(t, math.IsNaN(mean))
}

// A small cluster is measured for longer.
func TestDeparturesMeasureEnough(t *testing.T) {
	t.Parallel()
	trace := newTrace(t)
	d := Departures{Load: 0.5, Lives: 5, WarmUp: 5}
	d.Least = 10 * d.Arrivals(trace)
	must.GreaterEq(t, d.Least, d.Arrivals(trace))
}

func TestLoadPlotNeedsLoads(t *testing.T) {
	t.Parallel()
	err := WriteLoadPlot(filepath.Join(t.TempDir(), "x.svg"), "", []Row{{Name: "x", Case: Case{Test: Inflation{UpTo: 1}}}})
	must.ErrorContains(t, err, "departures")
}
