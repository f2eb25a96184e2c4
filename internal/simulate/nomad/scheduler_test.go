// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/simulate"
	"nomad-gpu-mem/internal/simulate/nomad"
)

// two is a cluster of two nodes with two GPUs each.
func two() *simulate.Trace {
	t := &simulate.Trace{}
	for _, id := range []string{"a", "b"} {
		n := placement.Node{ID: id, Name: id, CPU: 64_000, MemoryMiB: 100_000}
		for _, gpu := range []string{"0", "1"} {
			n.GPUs = append(n.GPUs, placement.GPU{ID: "gpu-" + id + gpu, Model: "T4", UnitMiB: 1, Units: 1000, Free: 1000})
		}
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

func share(milli int) simulate.Task {
	return simulate.Task{Milli: milli, Request: placement.Request{CPU: 1000, MemoryMiB: 1000, Asks: []placement.Ask{{Units: milli, Apart: "task"}}}}
}

func whole(gpus int) simulate.Task {
	t := simulate.Task{Milli: 1000 * gpus, Request: placement.Request{CPU: 1000, MemoryMiB: 1000}}
	for range gpus {
		t.Request.Asks = append(t.Request.Asks, placement.Ask{Whole: true, Apart: "task"})
	}
	return t
}

// Nomad fills the cluster to the last unit, rejects more, and places what fits
// when a task has ended.
func TestFillAndEmpty(t *testing.T) {
	t.Parallel()
	policy, err := placement.PolicyNamed(placement.DefaultPolicy)
	must.NoError(t, err)
	contenders := []simulate.Contender{nomad.Stock()}
	for _, pin := range planner.Pins {
		contenders = append(contenders, nomad.Steered(simulate.Steering{Policy: policy, Learned: true}, pin))
	}
	for _, c := range contenders {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			s, err := c.New(two(), 1)
			must.NoError(t, err)
			place := func(number int, task simulate.Task, want bool) {
				t.Helper()
				ok, err := s.Place(number, task)
				must.NoError(t, err)
				must.Eq(t, want, ok, must.Sprint(number))
			}
			place(0, whole(2), true)
			place(1, whole(2), true)
			place(2, share(10), false)
			must.NoError(t, s.End(1))
			place(3, share(810), true)
			place(4, whole(2), false)
			place(5, whole(1), true)
			place(6, share(200), false)
			place(7, share(190), true)
		})
	}
}
