// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
)

// goneAfter is how long a GPU must have been gone: maintenance may take a day.
const goneAfter = 24 * time.Hour

// goneGPUs finds GPUs of living nodes that no node has found for long, such as MIG instances
// of an earlier layout. Nothing else deletes their state.
func goneGPUs(e Evidence) (found []Finding) {
	nodes := map[allocator.NodeName]allocator.NodeState{}
	for _, node := range e.Table.Nodes {
		nodes[node.Name] = node
	}
	for _, gpu := range e.Table.GPUs {
		node := nodes[gpu.State.Node]
		if !node.Lacks(gpu.ID) || e.Table.IsDead(node, e.Now) || e.isUsed(gpu) {
			continue
		}
		// A device plugin keeps a GPU on its list until it restarts.
		if e.Now.Sub(gpu.State.UpdatedAt) <= goneAfter || e.Now.Sub(node.StartedAt) <= goneAfter {
			continue
		}
		found = append(found, Finding{
			Kind: GoneGPU, Node: node.Name, GPU: gpu.ID, Key: allocator.StateKey(gpu.ID), Minor: true,
			What: fmt.Sprintf("no node has found it for more than %s, and it has no claims; its state was written at %s",
				goneAfter, gpu.State.UpdatedAt.Format(time.RFC3339)),
			Why:    "its key stays in the table forever",
			Do:     "delete its state; if the GPU returns, it is reported again",
			Remedy: Remedy{Action: PurgeGPU, Safe: true, gpu: gpu.ID, lastSeen: gpu.State.UpdatedAt},
		})
	}
	return found
}

// isUsed reports whether a GPU's entry may still be needed: for a claim, a cordon, claims
// that cannot be read, another node that lists it, or units that Nomad has booked.
func (e Evidence) isUsed(gpu allocator.GPU) bool {
	if gpu.Ledger == nil || len(gpu.Claims()) > 0 || gpu.Cordon != nil {
		return true
	}
	if slices.ContainsFunc(e.Table.Nodes, func(n allocator.NodeState) bool { return slices.Contains(n.GPUs, gpu.ID) }) {
		return true
	}
	for _, alloc := range e.Nomad.allocs() {
		for _, task := range alloc.Tasks {
			if len(task.Units[gpu.ID]) > 0 && !alloc.Ended {
				return true
			}
		}
	}
	return false
}
