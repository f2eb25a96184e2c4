// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"
)

// Test is a way to replay a trace: Inflation or Departures.
type Test interface {
	// Name distinguishes the test from others of its kind.
	Name() string

	// Figures names what Run measures, in percent. Tests of one kind have the
	// same figures.
	Figures() []string

	// Arrivals returns about how many tasks arrive in Run.
	Arrivals(*Trace) int

	// Run replays the trace. It calls tick after every arrival.
	Run(ctx context.Context, t *Trace, s Scheduler, seed uint64, tick func()) (Result, error)
}

// Result is what one run measured.
type Result struct {
	Figures []float64
	Curve   Curve
}

// Contender makes a scheduler to measure.
type Contender struct {
	Name string
	New  func(t *Trace, seed uint64) (Scheduler, error) // for an empty cluster
}

// Experiment compares schedulers on one trace.
type Experiment struct {
	Trace      *Trace
	Cases      []Case // with tests of one kind
	Contenders []Contender
	Seeds      []uint64
	Workers    int    // runs at once, 1 at least
	Tick       func() // called after every arrival, from all workers; may be nil
}

// Case is a test, and the cluster that it runs on: with a Sample, every seed draws its own.
type Case struct {
	Test   Test
	Sample Sample
}

// Name distinguishes the case from others of the experiment.
func (c Case) Name() string {
	if c.Sample == (Sample{}) {
		return c.Test.Name()
	}
	return c.Sample.String() + ", " + c.Test.Name()
}

// Row is the results of one scheduler in one case.
type Row struct {
	Name    string
	Test    string // the case
	Case    Case
	Seeds   []uint64
	Results []Result // by seed
}

// Figures names the measured figures.
func (e Experiment) Figures() []string { return e.Cases[0].Test.Figures() }

// Arrivals returns about how many tasks arrive in all runs together.
func (e Experiment) Arrivals() int {
	sum := 0
	for _, c := range e.Cases {
		if t, err := e.Trace.Sample(c.Sample, e.Seeds[0]); err == nil { // else Run returns the error
			sum += c.Test.Arrivals(t) * len(e.Contenders) * len(e.Seeds)
		}
	}
	return sum
}

// Run runs all cases and seeds with all schedulers. The rows of a case are adjacent.
func (e Experiment) Run(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, c := range e.Cases {
		of, err := e.runCase(ctx, c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	return rows, nil
}

// runCase runs one case. All schedulers get the same clusters.
func (e Experiment) runCase(ctx context.Context, c Case) ([]Row, error) {
	traces := make([]*Trace, len(e.Seeds))
	for j, seed := range e.Seeds {
		var err error
		if traces[j], err = e.Trace.Sample(c.Sample, seed); err != nil {
			return nil, fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	rows := make([]Row, len(e.Contenders))
	runs, ctx := errgroup.WithContext(ctx)
	runs.SetLimit(max(1, e.Workers))
	for i, contender := range e.Contenders {
		rows[i] = Row{Name: contender.Name, Test: c.Name(), Case: c, Seeds: e.Seeds, Results: make([]Result, len(e.Seeds))}
		for j, seed := range e.Seeds {
			runs.Go(func() error {
				var err error
				rows[i].Results[j], err = e.run(ctx, contender, c.Test, traces[j], seed)
				if err != nil {
					return fmt.Errorf("%s, %s, seed %d: %w", contender.Name, c.Name(), seed, err)
				}
				return nil
			})
		}
	}
	if err := runs.Wait(); err != nil {
		return nil, err
	}
	return rows, nil
}

func (e Experiment) run(ctx context.Context, c Contender, test Test, t *Trace, seed uint64) (Result, error) {
	s, err := c.New(t, seed)
	if err != nil {
		return Result{}, err
	}
	tick := e.Tick
	if tick == nil {
		tick = func() {}
	}
	return test.Run(ctx, t, s, seed, tick)
}

// Mean returns a figure's mean over the seeds that have it, and its standard
// deviation.
func (r Row) Mean(figure int) (mean, deviation float64) {
	var values []float64
	for _, result := range r.Results {
		if v := result.Figures[figure]; !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return spread(values)
}
