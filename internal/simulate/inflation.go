// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Inflation is a test without departures: tasks arrive until they ask for a multiple of the
// cluster. Tasks that fit nowhere are dropped.
type Inflation struct {
	UpTo float64 // of the capacity, such as 1.3
}

// Curve is the allocated share of the cluster by the arrived share, both of its capacity.
type Curve []Point

// Point is a point of a Curve.
type Point struct{ Arrived, Allocated float64 }

// At returns the share that is allocated when this share has arrived.
func (c Curve) At(arrived float64) float64 {
	allocated := 0.0
	for _, p := range c {
		if p.Arrived > arrived {
			break
		}
		allocated = p.Allocated
	}
	return allocated
}

// Name names how much arrives.
func (i Inflation) Name() string { return fmt.Sprintf("inflation %.0f %%", 100*i.UpTo) }

// Figures are the shares in use when the capacity has arrived, and at the end, and the
// admitted shares of the tasks that arrived.
func (i Inflation) Figures() []string {
	return append([]string{"at 100 %", fmt.Sprintf("at %.0f %%", 100*i.UpTo)}, admissionFigures()...)
}

// Arrivals returns about how many tasks arrive in Run.
func (i Inflation) Arrivals(t *Trace) int {
	return int(i.UpTo * float64(t.Capacity()) / t.meanMilli())
}

// Run runs the test. The tasks arrive in an order that the seed shuffles; when all have
// arrived, further ones are drawn at random.
func (i Inflation) Run(ctx context.Context, t *Trace, s Scheduler, seed uint64, tick func()) (Result, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	order := random.Perm(len(t.Tasks))
	capacity := float64(t.Capacity())
	end := i.UpTo * capacity
	var curve Curve
	var counts admission
	arrived, allocated := 0, 0
	for number := 0; float64(arrived) < end; number++ {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		task := t.Tasks[random.IntN(len(t.Tasks))]
		if number < len(order) {
			task = t.Tasks[order[number]]
		}
		ok, err := s.Place(number, task)
		if err != nil {
			return Result{}, err
		}
		counts.count(task, ok)
		arrived += task.Milli
		if ok {
			allocated += task.Milli
		}
		curve = append(curve, Point{Arrived: float64(arrived) / capacity, Allocated: float64(allocated) / capacity})
		tick()
	}
	use := []float64{100 * curve.At(1), 100 * curve[len(curve)-1].Allocated}
	return Result{Figures: append(use, counts.figures()...), Curve: curve}, nil
}
