// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodesCSV = `sn,cpu_milli,memory_mib,gpu,model
node-0,64000,262144,2,T4
node-1,96000,393216,8,G2
node-2,32000,131072,4,G2
`

const tasksCSV = `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
pod-0,8000,16384,1,1000,,LS
pod-1,4000,8192,1,500,,LS
pod-2,4000,8192,1,500,T4|P100,LS
pod-3,2000,4096,1,250,,LS
pod-4,16000,4096,2,1000,,LS
pod-5,4000,8192,0,0,,BE
pod-6,4000,8192,1,500,,LS
`

// write makes a file of its own.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.csv")
	must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func newTrace(t *testing.T) *Trace {
	t.Helper()
	trace, err := ReadTrace(write(t, nodesCSV), write(t, tasksCSV))
	must.NoError(t, err)
	return trace
}

func contender(t *testing.T, policy string, learned bool) Contender {
	t.Helper()
	p, err := placement.PolicyNamed(policy)
	must.NoError(t, err)
	return Steering{Policy: p, Learned: learned}.Contender()
}

func TestReadTrace(t *testing.T) {
	t.Parallel()
	trace := newTrace(t)
	must.Eq(t, 14_000, trace.Capacity())
	must.Eq(t, 4750, trace.Demand())
	must.Len(t, 7, trace.Tasks)
	must.Eq(t, "T4", trace.Nodes[0].GPUs[1].Model)
	must.Eq(t, []string{"T4", "P100"}, trace.Tasks[2].Request.Asks[0].Models)
	must.Len(t, 2, trace.Tasks[4].Request.Asks)
	must.True(t, trace.Tasks[4].Request.Asks[0].Whole)
	must.SliceEmpty(t, trace.Tasks[5].Request.Asks)

	classes := trace.Classes()
	must.Len(t, 6, classes, must.Sprint("pod-1 and pod-6 have equal requests"))
	must.Eq(t, 2, classes[1].Weight)
}

func TestReadTraceRefuses(t *testing.T) {
	t.Parallel()
	const head = "cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	for name, test := range map[string]struct{ nodes, tasks, want string }{
		"no column":       {nodes: nodesCSV, tasks: "cpu_milli\n1\n", want: "no column memory_mib"},
		"not a number":    {nodes: nodesCSV, tasks: head + "1,1,1,1\n1,1,x,1\n", want: `line 3: column num_gpu: invalid value "x"`},
		"negative":        {nodes: nodesCSV, tasks: head + "-1,1,1,1\n", want: "must not be negative"},
		"two shared":      {nodes: nodesCSV, tasks: head + "1,1,2,500\n", want: "a task may share only one GPU"},
		"more than whole": {nodes: nodesCSV, tasks: head + "1,1,1,1500\n", want: "a task may share only one GPU"},
		"no demand":       {nodes: nodesCSV, tasks: head + "1,1,0,0\n", want: "nothing to simulate"},
		"empty":           {nodes: "", tasks: tasksCSV, want: "is empty"},
		"node too large":  {nodes: "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,2000000,T4\n", tasks: tasksCSV, want: "at most 64 GPUs"},
		"task too large":  {nodes: nodesCSV, tasks: head + "1,1,2000000,1000\n", want: "at most 64 GPUs"},
		"ragged":          {nodes: nodesCSV, tasks: head + "1,1\n", want: "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadTrace(write(t, test.nodes), write(t, test.tasks))
			must.ErrorContains(t, err, test.want)
		})
	}
}

// A cluster in which everything fits allocates what arrives, and no more.
func TestInflation(t *testing.T) {
	t.Parallel()
	trace := newTrace(t)
	s, err := contender(t, "least-waste", false).New(trace, 1)
	must.NoError(t, err)
	result, err := Inflation{UpTo: 1.5}.Run(t.Context(), trace, s, 1, func() {})
	must.NoError(t, err)
	must.Eq(t, result.Curve.At(0.2), result.Curve[indexAt(result.Curve, 0.2)].Arrived, must.Sprint("nothing is dropped early"))
	must.Between(t, 70, result.Figures[0], 100)
	must.GreaterEq(t, result.Figures[0], result.Figures[1])
	must.GreaterEq(t, 1.5, result.Curve[len(result.Curve)-1].Arrived)
}

func indexAt(c Curve, arrived float64) int {
	at := 0
	for at+1 < len(c) && c[at+1].Arrived <= arrived {
		at++
	}
	return at
}

// With little load, what is in use on average is what is asked for on average;
// with too much, it is less than the cluster.
func TestDepartures(t *testing.T) {
	t.Parallel()
	trace := newTrace(t)
	measure := func(load float64) float64 {
		s, err := contender(t, "best-fit", false).New(trace, 3)
		must.NoError(t, err)
		result, err := Departures{Load: load, Lives: 60, WarmUp: 5}.Run(t.Context(), trace, s, 3, func() {})
		must.NoError(t, err)
		return result.Figures[0]
	}
	must.InDelta(t, 20, measure(0.2), 3)
	must.Between(t, 60, measure(2), 100)
}

func TestExperiment(t *testing.T) {
	t.Parallel()
	var ticks atomic.Int64
	e := Experiment{
		Trace: newTrace(t), Cases: []Case{{Test: Inflation{UpTo: 1.3}}}, Seeds: []uint64{1, 2, 3}, Workers: 2,
		Contenders: []Contender{contender(t, "random", false), contender(t, "fgd", true)},
		Tick:       func() { ticks.Add(1) },
	}
	rows, err := e.Run(t.Context())
	must.NoError(t, err)
	must.Len(t, 2, rows)
	must.Eq(t, "fgd (learned)", rows[1].Name)
	must.Positive(t, ticks.Load())

	again, err := e.Run(t.Context())
	must.NoError(t, err)
	var once, twice bytes.Buffer
	must.NoError(t, WriteCSV(&once, e.Figures(), rows))
	must.NoError(t, WriteCSV(&twice, e.Figures(), again))
	must.Eq(t, once.String(), twice.String(), must.Sprint("a seed determines everything"))
	must.NotEq(t, rows[0].Results[0].Curve, rows[0].Results[1].Curve)

	var table, sheet bytes.Buffer
	must.NoError(t, WriteTable(&table, e.Figures(), rows))
	must.StrContains(t, table.String(), "at 130 %")
	must.Eq(t, 3, strings.Count(table.String(), "\n"))
	must.NoError(t, WriteCSV(&sheet, e.Figures(), rows))
	records, err := csv.NewReader(&sheet).ReadAll()
	must.NoError(t, err)
	must.Eq(t, []string{"scheduler", "test", "seed", "figure", "arrived", "value"}, records[0])
	must.Greater(t, 2*3*260, len(records), must.Sprint("six curves up to 130 %, a point for each half"))

	for name, start := range map[string]string{"plot.svg": "<?xml", "plot.png": "\x89PNG"} {
		path := filepath.Join(t.TempDir(), name)
		must.NoError(t, WritePlot(path, "title", rows))
		drawn, err := os.ReadFile(path)
		must.NoError(t, err)
		must.StrHasPrefix(t, start, string(drawn))
	}
}

func TestExperimentStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := Experiment{
		Trace: newTrace(t), Cases: []Case{{Test: Departures{Load: 1, Lives: 1e9}}}, Seeds: []uint64{1},
		Contenders: []Contender{contender(t, "pack", false)},
		Tick:       func() { cancel() },
	}
	_, err := e.Run(ctx)
	must.ErrorIs(t, err, context.Canceled)
	must.ErrorContains(t, err, "pack, load 1, seed 1")
}

func TestPlotNeedsACurve(t *testing.T) {
	t.Parallel()
	err := WritePlot(filepath.Join(t.TempDir(), "x.svg"), "", []Row{{Name: "x", Results: []Result{{}}}})
	must.ErrorContains(t, err, "no curve")
}
