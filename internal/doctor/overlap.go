// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"

	"nomad-gpu-mem/allocator"
)

// overlaps finds units that Nomad has booked for two living tasks, or that the table gives
// to another task than Nomad does.
func overlaps(e Evidence) (found []Finding) {
	table := byID(e.Table)
	given := map[allocator.GPUID]map[int]string{} // the task of each booked unit
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

// givenTwice returns the findings on units that Nomad has also booked for another task.
func (f Finding) givenTwice(units allocator.UnitSet, given map[int]string) (found []Finding) {
	twice := map[string]allocator.UnitSet{}
	for _, unit := range units {
		if other, seen := given[unit]; seen {
			twice[other] = append(twice[other], unit)
		}
		given[unit] = f.Task
	}
	for _, other := range slices.Sorted(maps.Keys(twice)) {
		f.What = fmt.Sprintf("Nomad has booked units %s for %s as well", twice[other], other)
		f.Why = "the second to start waits for the first to end"
		f.Do = "stop one of the two"
		found = append(found, f)
	}
	return found
}

// heldBy returns the findings on units of a task that others hold in the table.
func (f Finding) heldBy(others []allocator.Claim, local *Local) (found []Finding) {
	for _, claim := range others {
		f.Key = allocator.ClaimsKey(f.GPU)
		f.What = fmt.Sprintf("Nomad has booked units %s for it, but in the table %s holds them", claim.Units, claim.Owner)
		f.Why = "one of them cannot start, or both use the same memory"
		f.Do = "stop one of the two; the driver asserts the claim of a running task within a minute"
		switch {
		case claim.State != allocator.Held && local.provesGone(claim):
			f.What += ", which has no container on this node"
			f.Do = fmt.Sprintf("wait a minute: the task driver releases a claim without a container; if it stays, stop allocation %s", claim.Alloc)
		case claim.State == allocator.Held:
			f.Do = fmt.Sprintf("release the units with `nomad-gpu-mem release %s`, or stop the task", claim.Alloc)
		}
		found = append(found, f)
	}
	return found
}

// heldByOthers returns the claims on units of a GPU that Nomad has booked for this task
// only, reduced to these units. A claim of a task that is gone is only a leak.
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

// booked returns the units of a GPU that Nomad has booked for a task.
func (n *Nomad) booked(gpu allocator.GPUID, alloc, task string) allocator.UnitSet {
	return n.allocs()[alloc].Tasks[task].Units[gpu]
}
