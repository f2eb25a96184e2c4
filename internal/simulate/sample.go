// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"

	"nomad-gpu-mem/allocator/placement"
)

// Sample is a small cluster drawn from a large one: a number of its nodes with a number of
// GPUs each. The zero Sample is the whole cluster.
type Sample struct{ Nodes, GPUs int }

// String is the shape of the sample, such as 8x4.
func (s Sample) String() string { return fmt.Sprintf("%dx%d", s.Nodes, s.GPUs) }

// Sample draws a cluster; the seed determines the nodes. Tasks that fit no empty node of it
// are left out.
func (t *Trace) Sample(s Sample, seed uint64) (*Trace, error) {
	if s == (Sample{}) {
		return t, nil
	}
	var nodes []placement.Node
	for _, n := range t.Nodes {
		if len(n.GPUs) == s.GPUs {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) < s.Nodes {
		return nil, fmt.Errorf("the trace has %d nodes with %d GPUs, cannot draw %d", len(nodes), s.GPUs, s.Nodes)
	}
	random := rand.New(rand.NewPCG(seed, 3))
	random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	small := &Trace{Nodes: nodes[:s.Nodes]}
	if err := small.addFitting(t.Tasks); err != nil {
		return nil, err
	}
	if small.Demand() == 0 {
		return nil, fmt.Errorf("no task that asks for a GPU fits %s nodes: nothing to simulate", s)
	}
	return small, nil
}

// addFitting adds the tasks that fit the empty cluster. Classes are numbered
// again, as Classes expects.
func (t *Trace) addFitting(tasks []Task) error {
	const unknown, unfit = -2, -1
	empty := placement.New(placement.Policy{}, 0)
	for _, n := range t.Nodes {
		empty.SetNode(n)
	}
	var class []int // by class of the larger trace
	next := 0
	for _, task := range tasks {
		for task.Class >= len(class) {
			class = append(class, unknown)
		}
		if class[task.Class] == unknown {
			fits, err := empty.Shortlist(task.Request, 1)
			switch {
			case err != nil:
				return err
			case len(fits) == 0:
				class[task.Class] = unfit
			default:
				class[task.Class] = next
				next++
			}
		}
		if task.Class = class[task.Class]; task.Class != unfit {
			t.Tasks = append(t.Tasks, task)
		}
	}
	return nil
}
