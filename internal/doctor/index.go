// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import "nomad-gpu-mem/allocator"

// holder is a task on one GPU.
type holder struct {
	gpu         allocator.GPUID
	alloc, task string
}

// attempt is a start of a task, on one GPU.
type attempt struct {
	gpu allocator.GPUID
	id  string
}

// allocs returns all allocations, none if Nomad was not queried.
func (n *Nomad) allocs() map[string]Alloc {
	if n == nil {
		return nil
	}
	return n.Allocs
}

func byID(table *allocator.Snapshot) map[allocator.GPUID]allocator.GPU {
	all := make(map[allocator.GPUID]allocator.GPU, len(table.GPUs))
	for _, gpu := range table.GPUs {
		all[gpu.ID] = gpu
	}
	return all
}

func claimedBy(table *allocator.Snapshot) map[holder]bool {
	all := map[holder]bool{}
	for _, gpu := range table.GPUs {
		for _, claim := range gpu.Claims() {
			all[holder{gpu.ID, claim.Alloc, claim.Task}] = true
		}
	}
	return all
}

func attemptsIn(table *allocator.Snapshot) map[attempt]bool {
	all := map[attempt]bool{}
	for _, gpu := range table.GPUs {
		for _, claim := range gpu.Claims() {
			all[attempt{gpu.ID, claim.Attempt}] = true
		}
	}
	return all
}

// claimsOn counts the claims on a node's GPUs, and those of tasks that may run.
func (e Evidence) claimsOn(node allocator.NodeName) (count, living int) {
	for _, gpu := range e.Table.GPUs {
		if gpu.State.Node != node {
			continue
		}
		for _, claim := range gpu.Claims() {
			count++
			if e.mayLive(claim) {
				living++
			}
		}
	}
	return count, living
}

// current returns the GPUs with current state in the table: neither they nor their nodes
// are gone.
func (e Evidence) current() (gpus []allocator.GPU) {
	nodes := map[allocator.NodeName]allocator.NodeState{}
	for _, node := range e.Table.Nodes {
		nodes[node.Name] = node
	}
	for _, gpu := range e.Table.GPUs {
		if node := nodes[gpu.State.Node]; !node.Lacks(gpu.ID) && !e.Table.IsDead(node, e.Now) {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}
