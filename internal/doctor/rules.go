// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
)

const (
	// grace is how long table, Nomad and engine may differ while a task starts
	// or ends.
	grace = 2 * time.Minute
	// orphanGrace is grace without Nomad: Docker may still pull the image for a claim
	// that has no container yet.
	orphanGrace = 10 * time.Minute
)

// Diagnose returns all findings, ordered by kind, node and GPU.
func Diagnose(e Evidence) []Finding {
	var all []Finding
	for _, rule := range []func(Evidence) []Finding{
		unreadable, overlaps, leaks, phantoms, squatters, overclaims, deadNodes, nameless, sharedNames, blind, skews, goneGPUs,
	} {
		all = append(all, rule(e)...)
	}
	return all
}

func unreadable(e Evidence) (found []Finding) {
	for _, problem := range e.Table.Problems {
		if errors.Is(problem.Err, allocator.ErrNewer) {
			found = append(found, Finding{
				Kind: Unreadable, Key: problem.Key,
				What: problem.Err.Error(),
				Why:  "this version cannot read it; a newer one can",
				Do:   "update this program; the value stays unchanged",
			})
			continue
		}
		found = append(found, Finding{
			Kind: Unreadable, Key: problem.Key,
			What:   problem.Err.Error(),
			Why:    "it is never overwritten, so its GPU accepts no new claims and its node cannot report",
			Do:     "repair the value by hand; or delete it: running tasks assert their claims again within a minute, but those of a plugin that is down are missing until it runs again",
			Remedy: Remedy{Action: PurgeKey, key: problem.Key},
		})
	}
	return found
}

// leaks finds orphan claims: those of tasks that are gone.
func leaks(e Evidence) (found []Finding) {
	for _, gpu := range e.Table.GPUs {
		for _, claim := range gpu.Claims() {
			if claim.State != allocator.Claimed && claim.State != allocator.Running || e.Local.runs(claim) || e.isForeign(claim) {
				continue
			}
			what, proven := e.gone(claim)
			if what == "" {
				continue
			}
			if node := e.movedTo(gpu, claim); node != "" && e.lost(claim) {
				what, proven = fmt.Sprintf("%s, and node %s reports the GPU now", what, node), true
			}
			f := Finding{
				Kind: Leak, Node: claim.NodeName, GPU: gpu.ID, Task: claim.Owner.String(), Key: allocator.ClaimsKey(gpu.ID),
				What: fmt.Sprintf("units %s are claimed, but %s", claim.Units, what),
				Why:  fmt.Sprintf("%d MiB are unavailable to other tasks", uint64(len(claim.Units))*gpu.Ledger.UnitMiB),
				Do:   "release the claim",
			}
			if !claim.StuckAt.IsZero() && !e.Local.provesGone(claim) {
				f.What += "; its container could not be stopped"
				proven = false // Nomad gives up such a task, but its process keeps running
			}
			f.Remedy = Remedy{Action: Release, Safe: proven, claim: claim, gpu: gpu.ID}
			if !proven {
				f.Do += "; first make sure on the node that no container of this task runs"
			}
			found = append(found, f)
		}
	}
	return found
}

// movedTo returns the living node that reports a GPU, if it is not the claim's node: a GPU
// is in one machine only.
func (e Evidence) movedTo(gpu allocator.GPU, claim allocator.Claim) allocator.NodeName {
	reporter := gpu.State.Node
	if reporter == "" || claim.NodeName == "" || claim.IsOn(reporter) {
		return ""
	}
	for _, node := range e.Table.Nodes {
		if node.Name == reporter && !node.Lacks(gpu.ID) && !e.Table.IsDead(node, e.Now) {
			return reporter
		}
	}
	return ""
}

// lost reports whether Nomad has lost the node of a claim's allocation.
func (e Evidence) lost(claim allocator.Claim) bool { return e.Nomad.allocs()[claim.Alloc].Lost }

// gone returns why a claim's task is gone; "" if it may still exist. It is proven if the
// task's own client or engine says so.
func (e Evidence) gone(claim allocator.Claim) (what string, proven bool) {
	age := e.Now.Sub(claim.ClaimedAt)
	here := e.Local.provesGone(claim)
	if e.Nomad == nil {
		if here && age > orphanGrace {
			return "the node has no container for it", true
		}
		return "", false
	}
	alloc, known := e.Nomad.Allocs[claim.Alloc]
	task := alloc.Tasks[claim.Task]
	switch {
	case age < grace:
		return "", false
	case !known:
		return "Nomad does not know its allocation", here
	case alloc.Lost:
		return "Nomad has lost its node", here
	case alloc.Ended:
		return "its allocation has ended in Nomad", true
	case task.Ended && e.Now.Sub(task.Since) > grace:
		return "its task has ended in Nomad", true
	}
	return "", false
}

// phantoms finds tasks and containers that use a GPU without a claim.
func phantoms(e Evidence) (found []Finding) {
	claimed, table := claimedBy(e.Table), byID(e.Table)
	add := func(node allocator.NodeName, task string, gpu allocator.GPUID, what string) {
		found = append(found, Finding{
			Kind: Phantom, Node: node, GPU: gpu, Task: task, What: what,
			Why: "the table counts its memory as free, so planners may use it for other tasks",
			Do: "nothing, if its driver is gpu-docker: the driver asserts claims every minute, and logs why it cannot; " +
				"tasks of other drivers hold no claim",
		})
	}
	for _, id := range slices.Sorted(maps.Keys(e.Nomad.allocs())) {
		alloc := e.Nomad.Allocs[id]
		for _, name := range slices.Sorted(maps.Keys(alloc.Tasks)) {
			task := alloc.Tasks[name]
			for _, gpu := range slices.Sorted(maps.Keys(task.Units)) {
				if !task.Running || e.Now.Sub(task.Since) < grace || len(e.heldByOthers(table[gpu], id, name)) > 0 {
					continue // the last is an overlap
				}
				if !claimed[holder{gpu, id, name}] {
					add(alloc.NodeName, allocator.Owner{Job: alloc.Job, Task: name, Alloc: id}.String(), gpu,
						fmt.Sprintf("the task runs with units %s but has no claim", task.Units[gpu]))
				}
			}
		}
	}
	if e.Local == nil || e.Nomad != nil {
		return found // Nomad has them all
	}
	attempts := attemptsIn(e.Table)
	for _, c := range e.Local.Containers {
		for _, gpu := range c.GPUs {
			if c.Running && e.Now.Sub(c.Since) > grace && !attempts[attempt{gpu, c.Attempt}] {
				add(e.Local.Node, "alloc "+c.Alloc, gpu, fmt.Sprintf("container %s runs but has no claim", c.Name))
			}
		}
	}
	return found
}

// squatters finds unmanaged use: processes that use a GPU without a claim. It has the two
// parts of allocator.GPU.Unexplained, as `status` shows them. GPUs that are gone, or on a
// node that is gone, are skipped: their state is old.
func squatters(e Evidence) (found []Finding) {
	for _, gpu := range e.current() {
		add := func(what, why string) {
			found = append(found, Finding{
				Kind: Squatter, Node: gpu.State.Node, GPU: gpu.ID, What: what, Why: why,
				Do: "find the processes with nvidia-smi on the node; end them, or hold a slice for them with `nomad-gpu-mem claim`",
			})
		}
		unmanaged, unattributed := gpu.Unexplained()
		if unmanaged > 0 {
			add(fmt.Sprintf("%d MiB are in use by processes that hold no slice, or by tasks beyond theirs", unmanaged),
				"tasks that hold this memory may run out of it; the device plugin offers that much less")
		}
		if unattributed > 0 {
			add(fmt.Sprintf("%d MiB more are in use than is claimed, by processes that cannot be attributed", unattributed),
				"tasks may run out of memory; the device plugin still offers it, since a task of a driver without claims may use it")
		}
	}
	return found
}

func deadNodes(e Evidence) (found []Finding) {
	for _, node := range e.Table.Nodes {
		if !e.Table.IsDead(node, e.Now) {
			continue
		}
		what := ""
		if e.Table.Liveness(node) == allocator.Dead {
			what = "it has lost its lease; "
		}
		what += fmt.Sprintf("it was last seen %s", node.LastSeen.Format(time.RFC3339))
		if claims, living := e.claimsOn(node.Name); claims > 0 {
			what += fmt.Sprintf("; it has %d claims", claims)
			if living > 0 {
				what += fmt.Sprintf(", and the tasks of %d of them may still run: these claims stay", living)
			}
		}
		for _, gpu := range e.Table.GPUs {
			if now := gpu.State.Node; now != "" && now != node.Name && slices.Contains(node.GPUs, gpu.ID) {
				what += fmt.Sprintf("; node %[2]s reports its GPU %[1]s now: was the node replaced or renamed?", gpu.ID, now)
			}
		}
		found = append(found, Finding{
			Kind: DeadNode, Node: node.Name, Key: allocator.NodeKey(node.Name), What: what,
			Why:    "planners no longer use it; its claims stay, since it is not proven that its tasks are gone",
			Do:     "find out why its device plugin does not report; if the node is lost for good, purge it with its GPUs and claims",
			Remedy: Remedy{Action: PurgeNode, node: node.Name, lastSeen: node.LastSeen, spare: e.mayLive},
		})
	}
	return found
}

// nameless finds nodes of which the table has had only GPUs for long: a node that has these
// GPUs now cannot report them.
func nameless(e Evidence) (found []Finding) {
	known := map[string]bool{}
	for _, node := range e.Table.Nodes {
		known[allocator.NodeKey(node.Name)] = true
	}
	for _, problem := range e.Table.Problems {
		known[problem.Key] = true // has a finding already
	}
	for _, gpu := range e.Table.GPUs {
		name := gpu.State.Node
		if name == "" || known[allocator.NodeKey(name)] || e.Now.Sub(gpu.State.UpdatedAt) <= allocator.Silence {
			continue
		}
		known[allocator.NodeKey(name)] = true // one finding for all its GPUs
		found = append(found, Finding{
			Kind: DeadNode, Node: name, Key: allocator.StateKey(gpu.ID),
			What:   "the table has GPUs of this node, but no state of the node itself",
			Why:    "if another node has these GPUs now, it cannot report them",
			Do:     "check whether the node exists; if it is lost for good, or was renamed, purge it with its GPUs and claims",
			Remedy: Remedy{Action: PurgeNode, node: name, spare: e.mayLive},
		})
	}
	return found
}

func skews(e Evidence) (found []Finding) {
	for _, node := range e.Table.Nodes {
		if node.Version != e.Version {
			found = append(found, Finding{
				Kind: Skew, Node: node.Name,
				What: fmt.Sprintf("the node has version %s, this program is %s", node.Version, e.Version),
				Why:  "versions are compatible, but an older node may lack features of a newer one",
				Do:   "upgrade the older of the two",
			})
		}
	}
	return found
}
