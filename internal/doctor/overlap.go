// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"

	"nomad-gpu-mem/allocator"
)

// overlaps are units that Nomad has given to two tasks that live, or that the
// table gives to another than Nomad does.
func overlaps(e Evidence) (found []Finding) {
	table := byID(e.Table)
	given := map[allocator.GPUID]map[int]string{} // to whom Nomad has given a unit
	for _, id := range slices.Sorted(maps.Keys(e.Nomad.allocs())) {
		alloc := e.Nomad.Allocs[id]
		if alloc.Ended || alloc.Lost {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(alloc.Tasks)) {
			task := alloc.Tasks[name]
			if task.Ended {
				continue
			}
			owner := allocator.Owner{Job: alloc.Job, Task: name, Alloc: id}.String()
			for _, gpu := range slices.Sorted(maps.Keys(task.Units)) {
				if given[gpu] == nil {
					given[gpu] = map[int]string{}
				}
				f := Finding{Kind: Overlap, Node: alloc.NodeName, GPU: gpu, Task: owner}
				found = append(found, f.givenTwice(task.Units[gpu], given[gpu])...)
				if e.Now.Sub(task.Since) >= grace {
					found = append(found, f.heldBy(e.heldByOthers(table[gpu], id, name), e.Local)...)
				}
			}
		}
	}
	return found
}

// givenTwice are the findings on units that Nomad has given to another task before.
func (f Finding) givenTwice(units allocator.UnitSet, given map[int]string) (found []Finding) {
	twice := map[string]allocator.UnitSet{}
	for _, unit := range units {
		if other, seen := given[unit]; seen {
			twice[other] = append(twice[other], unit)
		}
		given[unit] = f.Task
	}
	for _, other := range slices.Sorted(maps.Keys(twice)) {
		f.What = fmt.Sprintf("Nomad has given units %s to %s as well", twice[other], other)
		f.Why = "the second to start waits for the first to end"
		f.Do = "stop one of the two"
		found = append(found, f)
	}
	return found
}

// heldBy are the findings on units of a task that the table gives to others.
func (f Finding) heldBy(others []allocator.Claim, local *Local) (found []Finding) {
	for _, claim := range others {
		f.Key = allocator.ClaimsKey(f.GPU)
		f.What = fmt.Sprintf("Nomad has given units %s to it, and the table to %s", claim.Units, claim.Owner)
		f.Why = "the one cannot start, or both use the same memory"
		f.Do = "stop one of the two; what runs asserts its claim by itself within a minute"
		switch {
		case claim.State != allocator.Held && local.provesGone(claim):
			f.What += ", of which no container is on this node"
			f.Do = fmt.Sprintf("wait a minute: the task driver releases a claim without a container; if it stays, stop allocation %s", claim.Alloc)
		case claim.State == allocator.Held:
			f.Do = fmt.Sprintf("give the units back with `nomad-gpu-mem release %s`, or stop the task", claim.Alloc)
		}
		found = append(found, f)
	}
	return found
}

// heldByOthers are the claims on units of a GPU which Nomad has given to this task
// alone, cut down to these units. A claim whose own task is gone is a leak, not more.
func (e Evidence) heldByOthers(gpu allocator.GPU, alloc, task string) (others []allocator.Claim) {
	units := e.Nomad.booked(gpu.ID, alloc, task)
	for _, claim := range gpu.Claims() {
		isPromise := claim.State == allocator.Reserved || claim.State == allocator.Requested
		if isPromise || claim.Alloc == alloc && claim.Task == task {
			continue
		}
		if what, _ := e.gone(claim); what != "" && claim.State != allocator.Held && !e.Local.runs(claim) {
			continue
		}
		own := e.Nomad.booked(gpu.ID, claim.Alloc, claim.Task)
		claim.Units = slices.DeleteFunc(claim.Units.Intersect(units), own.Contains)
		if len(claim.Units) > 0 {
			others = append(others, claim)
		}
	}
	return others
}

// booked are the units of a GPU that Nomad has given to a task.
func (n *Nomad) booked(gpu allocator.GPUID, alloc, task string) allocator.UnitSet {
	return n.allocs()[alloc].Tasks[task].Units[gpu]
}
