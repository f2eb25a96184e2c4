// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import "fmt"

// overclaims finds GPUs with claims that exceed the GPU's memory.
func overclaims(e Evidence) (found []Finding) {
	for _, gpu := range e.current() {
		over := gpu.Overclaimed()
		if over == 0 {
			continue
		}
		found = append(found, Finding{
			Kind: Overclaim, Node: gpu.State.Node, GPU: gpu.ID,
			What: fmt.Sprintf("its claims exceed its offered memory by %d MiB: it has %d MiB, of which %d MiB are reserved",
				over, gpu.State.MemoryMiB, gpu.State.ReservedMiB),
			Why: "its tasks may run out of memory, each within its slice",
			Do:  "stop a task on it, and find out why the GPU became smaller: the driver, ECC, MIG or reserved_memory",
		})
	}
	return found
}

// sharedNames finds host names that more than one machine reports.
func sharedNames(e Evidence) (found []Finding) {
	for _, node := range e.Table.Nodes {
		if !node.SharedUntil.After(e.Now) {
			continue
		}
		found = append(found, Finding{
			Kind: SharedName, Node: node.Name, What: "more than one machine reports under this host name",
			Why: "the table shows them as one node, so a machine that is dead or has lost a GPU goes unnoticed",
			Do:  "give each machine a different host name, and restart its Nomad agent",
		})
	}
	return found
}

// blind finds living nodes that cannot read their GPUs.
func blind(e Evidence) (found []Finding) {
	for _, node := range e.Table.Nodes {
		if node.Fault == "" || e.Table.IsDead(node, e.Now) {
			continue
		}
		found = append(found, Finding{
			Kind: Blind, Node: node.Name, What: "its GPUs cannot be read: " + node.Fault,
			Why: "no task can be placed on them; running tasks keep running",
			Do:  "run nvidia-smi on the node to find the driver's fault; if library and driver differ in version, restart the Nomad agent, or reboot",
		})
	}
	return found
}
