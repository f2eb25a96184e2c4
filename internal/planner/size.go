// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/allocator/profile"
)

// groupSize returns the CPU in MHz and host memory in MiB that an instance needs, by
// Nomad's rules for tasks that do not run at the same time.
func groupSize(group *api.TaskGroup) (cpu, memoryMiB int) {
	all := structs.AllocatedResources{
		Tasks:          map[string]*structs.AllocatedTaskResources{},
		TaskLifecycles: map[string]*structs.TaskLifecycleConfig{},
	}
	for _, task := range group.Tasks {
		r := &structs.AllocatedTaskResources{}
		if task.Resources.CPU != nil {
			r.Cpu.CpuShares = int64(*task.Resources.CPU)
		}
		if task.Resources.MemoryMB != nil {
			r.Memory.MemoryMB = int64(*task.Resources.MemoryMB)
		}
		all.Tasks[task.Name] = r
		if task.Lifecycle != nil {
			all.TaskLifecycles[task.Name] = &structs.TaskLifecycleConfig{Hook: task.Lifecycle.Hook, Sidecar: task.Lifecycle.Sidecar}
		}
	}
	flat := all.Comparable().Flattened
	return int(flat.Cpu.CpuShares), int(flat.Memory.MemoryMB)
}

// settleUnplaced gives asks that fit nowhere now the counts and limits that they would have
// on empty nodes: with these Nomad waits until units become free.
func (p *planning) settleUnplaced(w *groupPlan) error {
	empty := p.emptied()
	d, err := empty.chooseForMany(w)
	if errors.Is(err, placement.ErrNoRoom) {
		return p.settleTooLarge(w)
	}
	if err == nil {
		empty.settle(w, d)
	}
	return err
}

// settleTooLarge gives asks that do not even fit on empty nodes the count that they would
// have on the smallest GPU that could hold each alone, or on the largest if none could. A
// node that fits may join the cluster.
func (p *planning) settleTooLarge(w *groupPlan) error {
	for i, a := range w.asks {
		if !a.need.Whole && a.need.MiB == 0 {
			continue
		}
		smallest := p.smallest(w, a)
		switch {
		case smallest == nil:
			return fmt.Errorf("task %q asks for %s, but no node has a GPU that it allows", a.task.Name, a.need)
		case a.need.Whole:
			w.limits[i].units = smallest.Units
			w.setCount(i, smallest.Units)
		default:
			w.limits[i].unitMiB = smallest.UnitMiB
			w.setCount(i, profile.Units(a.need.MiB, uint64(smallest.UnitMiB)))
		}
	}
	return nil
}

// smallest returns the smallest GPU that could hold the ask if it were empty, or
// the largest if none could; nil if the job allows none.
func (p *planning) smallest(w *groupPlan, a ask) *placement.GPU {
	var best *placement.GPU
	for _, n := range p.cluster.Nodes {
		node, _ := p.placer.Node(n.ID)
		for _, g := range node.GPUs {
			if g.UnitMiB > 0 && w.judge.gpu(g.Data.(*gpuData).device, a.device) && (best == nil || nearer(g, *best, int(a.need.MiB))) {
				best = &g
			}
		}
	}
	return best
}

// nearer reports whether the size of a GPU is nearer to mib than another's: large enough
// first, then smaller.
func nearer(g, other placement.GPU, mib int) bool {
	size, best := g.Units*g.UnitMiB, other.Units*other.UnitMiB
	if best < mib {
		return size > best
	}
	return size >= mib && size < best
}
