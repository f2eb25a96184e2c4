// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"strconv"
)

// Departures is a test in which tasks come and go: they arrive at random times
// and live for random times. Tasks that fit nowhere are dropped.
type Departures struct {
	Load   float64 // what tasks ask for on average, as a share of the capacity
	Lives  float64 // mean lifetimes that are measured, at least
	WarmUp float64 // mean lifetimes before that
	Least  int     // tasks that arrive while it is measured, at least: a small cluster needs more lifetimes
}

// Name names the load.
func (d Departures) Name() string { return "load " + strconv.FormatFloat(d.Load, 'f', -1, 64) }

// Figures are the share in use, on average over time, and the admitted shares of the tasks
// that arrived.
func (d Departures) Figures() []string { return append([]string{"in use"}, admissionFigures()...) }

// Arrivals returns about how many tasks arrive in Run.
func (d Departures) Arrivals(t *Trace) int { return int((d.WarmUp + d.lives(t)) * d.rate(t)) }

// lives returns how long Run measures.
func (d Departures) lives(t *Trace) float64 { return max(d.Lives, float64(d.Least)/d.rate(t)) }

// rate returns how many tasks arrive in a mean lifetime, the unit of time.
func (d Departures) rate(t *Trace) float64 { return d.Load * float64(t.Capacity()) / t.meanMilli() }

// Run runs the test.
func (d Departures) Run(ctx context.Context, t *Trace, s Scheduler, seed uint64, tick func()) (Result, error) {
	random := rand.New(rand.NewPCG(seed, 2))
	rate, measured := d.rate(t), d.lives(t)
	end := d.WarmUp + measured
	var running lives
	var now, area float64
	var counts admission
	allocated := 0
	pass := func(to float64) { // time passes
		if from := max(now, d.WarmUp); to > from {
			area += float64(allocated) * (min(to, end) - from)
		}
		now = to
	}
	for number := 0; ; number++ {
		arrival := now + random.ExpFloat64()/rate
		task, lifetime := t.Tasks[random.IntN(len(t.Tasks))], random.ExpFloat64()
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		for len(running) > 0 && running[0].until < min(arrival, end) {
			gone := heap.Pop(&running).(life)
			pass(gone.until)
			if err := s.End(gone.number); err != nil {
				return Result{}, err
			}
			allocated -= gone.milli
		}
		pass(min(arrival, end))
		if arrival >= end {
			use := 100 * area / measured / float64(t.Capacity())
			return Result{Figures: append([]float64{use}, counts.figures()...)}, nil
		}
		ok, err := s.Place(number, task)
		if err != nil {
			return Result{}, err
		}
		if now >= d.WarmUp {
			counts.count(task, ok)
		}
		if ok {
			allocated += task.Milli
			heap.Push(&running, life{until: arrival + lifetime, number: number, milli: task.Milli})
		}
		tick()
	}
}

// life is a running task.
type life struct {
	until         float64
	number, milli int
}

// lives is a heap: the next to end is the first.
type lives []life

func (l lives) Len() int           { return len(l) }
func (l lives) Less(i, j int) bool { return l[i].until < l[j].until }
func (l lives) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lives) Push(x any)        { *l = append(*l, x.(life)) }
func (l *lives) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}
