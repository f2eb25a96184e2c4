package simulate

import (
	"context"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"
)

// Test is a way to play a trace: Inflation or Departures.
type Test interface {
	// Figures names what Run measures, in percent of the capacity.
	Figures() []string

	// Arrivals is about how many tasks Run will play.
	Arrivals(*Trace) int

	// Run plays the trace. It calls tick after every arrival.
	Run(ctx context.Context, t *Trace, s Scheduler, seed uint64, tick func()) (Result, error)
}

// Result is what one run measured.
type Result struct {
	Figures []float64
	Curve   Curve
}

// Contender makes a scheduler that is measured.
type Contender struct {
	Name string
	New  func(t *Trace, seed uint64) (Scheduler, error) // for an empty cluster
}

// Experiment compares schedulers on one trace.
type Experiment struct {
	Trace      *Trace
	Test       Test
	Contenders []Contender
	Seeds      []uint64
	Workers    int    // runs at once, 1 at least
	Tick       func() // called after every arrival, from all workers; may be nil
}

// Row is what one scheduler reached.
type Row struct {
	Name    string
	Seeds   []uint64
	Results []Result // by seed
}

// Arrivals is about how many tasks all runs play together.
func (e Experiment) Arrivals() int {
	return e.Test.Arrivals(e.Trace) * len(e.Contenders) * len(e.Seeds)
}

// Run plays all seeds with all schedulers.
func (e Experiment) Run(ctx context.Context) ([]Row, error) {
	rows := make([]Row, len(e.Contenders))
	runs, ctx := errgroup.WithContext(ctx)
	runs.SetLimit(max(1, e.Workers))
	for i, c := range e.Contenders {
		rows[i] = Row{Name: c.Name, Seeds: e.Seeds, Results: make([]Result, len(e.Seeds))}
		for j, seed := range e.Seeds {
			runs.Go(func() error {
				var err error
				rows[i].Results[j], err = e.run(ctx, c, seed)
				if err != nil {
					return fmt.Errorf("%s, seed %d: %w", c.Name, seed, err)
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

func (e Experiment) run(ctx context.Context, c Contender, seed uint64) (Result, error) {
	s, err := c.New(e.Trace, seed)
	if err != nil {
		return Result{}, err
	}
	tick := e.Tick
	if tick == nil {
		tick = func() {}
	}
	return e.Test.Run(ctx, e.Trace, s, seed, tick)
}

// Mean returns a figure's mean over the seeds and its standard deviation.
func (r Row) Mean(figure int) (mean, deviation float64) {
	n := float64(len(r.Results))
	for _, result := range r.Results {
		mean += result.Figures[figure] / n
	}
	for _, result := range r.Results {
		deviation += (result.Figures[figure] - mean) * (result.Figures[figure] - mean)
	}
	return mean, math.Sqrt(deviation / max(1, n-1))
}
