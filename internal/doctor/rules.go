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
	// orphanGrace is grace where Nomad was not asked: an image may be on its
	// way for a claim that has no container yet.
	orphanGrace = 10 * time.Minute
)

// Diagnose returns what is wrong, in the order of its kinds, nodes and GPUs.
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
				Why:  "what it says is unknown here; to a newer version it is sound",
				Do:   "update this program; the value stays as it is",
			})
			continue
		}
		found = append(found, Finding{
			Kind: Unreadable, Key: problem.Key,
			What:   problem.Err.Error(),
			Why:    "nothing is ever written over it, so its GPU takes no new claims and its node cannot report",
			Do:     "repair the value by hand; or delete it: tasks that run assert their claims again within a minute, but one whose plugin is down would go unseen",
			Remedy: Remedy{Action: PurgeKey, key: problem.Key},
		})
	}
	return found
}

// leaks are claims whose task is gone.
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
				what, proven = fmt.Sprintf("%s, and the GPU is in node %s now", what, node), true
			}
			f := Finding{
				Kind: Leak, Node: claim.NodeName, GPU: gpu.ID, Task: claim.Owner.String(), Key: allocator.ClaimsKey(gpu.ID),
				What: fmt.Sprintf("units %s are claimed, but %s", claim.Units, what),
				Why:  fmt.Sprintf("%d MiB are lost to other tasks", uint64(len(claim.Units))*gpu.Ledger.UnitMiB),
				Do:   "release the claim",
			}
			if !claim.StuckAt.IsZero() && !e.Local.provesGone(claim) {
				f.What += "; its container could not be ended"
				proven = false // Nomad gives such a task up, and the process goes on
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

// movedTo names the living node that reports a GPU, if it is not the claim's: a GPU is
// in one machine.
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

// gone says why a claim's task is no more; "" if it may be there. It is proven
// if the task's own client or engine says so.
func (e Evidence) gone(claim allocator.Claim) (what string, proven bool) {
	age := e.Now.Sub(claim.ClaimedAt)
	here := e.Local.provesGone(claim)
	if e.Nomad == nil {
		if here && age > orphanGrace {
			return "the node has no container of it", true
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
		return "Nomad says that its allocation has ended", true
	case task.Ended && e.Now.Sub(task.Since) > grace:
		return "Nomad says that its task has ended", true
	}
	return "", false
}

// phantoms are tasks and containers that use a GPU without a claim.
func phantoms(e Evidence) (found []Finding) {
	claimed, table := claimedBy(e.Table), byID(e.Table)
	add := func(node allocator.NodeName, task string, gpu allocator.GPUID, what string) {
		found = append(found, Finding{
			Kind: Phantom, Node: node, GPU: gpu, Task: task, What: what,
			Why: "the table counts its memory as free, so planners may give it away",
			Do: "nothing, if its driver is gpu-docker: it asserts its claims every minute, and its log says why it cannot; " +
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
						fmt.Sprintf("the task runs with units %s, and has no claim", task.Units[gpu]))
				}
			}
		}
	}
	if e.Local == nil || e.Nomad != nil {
		return found // Nomad knows them better
	}
	attempts := attemptsIn(e.Table)
	for _, c := range e.Local.Containers {
		for _, gpu := range c.GPUs {
			if c.Running && e.Now.Sub(c.Since) > grace && !attempts[attempt{gpu, c.Attempt}] {
				add(e.Local.Node, "alloc "+c.Alloc, gpu, fmt.Sprintf("container %s runs, and has no claim", c.Name))
			}
		}
	}
	return found
}

// squatters are processes that use a GPU without a claim. Their use is told in two
// parts, as allocator.GPU.Unexplained has them and `status` shows them. What is
// written of a GPU that is gone, or whose node is, is old.
func squatters(e Evidence) (found []Finding) {
	for _, gpu := range e.current() {
		add := func(what, why string) {
			found = append(found, Finding{
				Kind: Squatter, Node: gpu.State.Node, GPU: gpu.ID, What: what, Why: why,
				Do: "see with nvidia-smi on the node whose processes they are; end them, or take a slice for them with `nomad-gpu-mem claim`",
			})
		}
		unmanaged, unattributed := gpu.Unexplained()
		if unmanaged > 0 {
			add(fmt.Sprintf("%d MiB are in use by processes that hold no slice, or by tasks beyond theirs", unmanaged),
				"tasks that were sold this memory run out of it; the device plugin offers so much less")
		}
		if unattributed > 0 {
			add(fmt.Sprintf("%d MiB more are in use than is claimed, by processes that cannot be attributed", unattributed),
				"tasks may run out of memory; the device plugin offers it all the same, since it may be a task's of a driver that makes no claims")
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
			what += fmt.Sprintf("; %d claims are on it", claims)
			if living > 0 {
				what += fmt.Sprintf(", and the tasks of %d of them may run: those claims stay", living)
			}
		}
		for _, gpu := range e.Table.GPUs {
			if now := gpu.State.Node; now != "" && now != node.Name && slices.Contains(node.GPUs, gpu.ID) {
				what += fmt.Sprintf("; its GPU %s is reported by node %s now: was it replaced or renamed?", gpu.ID, now)
			}
		}
		found = append(found, Finding{
			Kind: DeadNode, Node: node.Name, Key: allocator.NodeKey(node.Name), What: what,
			Why:    "planners no longer use it; its claims stay, since nobody has proven that its tasks are gone",
			Do:     "see why its device plugin does not report; if the node is lost for good, purge it with its GPUs and claims",
			Remedy: Remedy{Action: PurgeNode, node: node.Name, lastSeen: node.LastSeen, spare: e.mayLive},
		})
	}
	return found
}

// nameless are nodes of which the table has GPUs and nothing else, for long: whoever
// has these GPUs now cannot report them.
func nameless(e Evidence) (found []Finding) {
	known := map[string]bool{}
	for _, node := range e.Table.Nodes {
		known[allocator.NodeKey(node.Name)] = true
	}
	for _, problem := range e.Table.Problems {
		known[problem.Key] = true // a finding of its own
	}
	for _, gpu := range e.Table.GPUs {
		name := gpu.State.Node
		if name == "" || known[allocator.NodeKey(name)] || e.Now.Sub(gpu.State.UpdatedAt) <= allocator.Silence {
			continue
		}
		known[allocator.NodeKey(name)] = true // once for all its GPUs
		found = append(found, Finding{
			Kind: DeadNode, Node: name, Key: allocator.StateKey(gpu.ID),
			What:   "the table has GPUs of it, and nothing of the node itself",
			Why:    "if another node has these GPUs now, it cannot report them",
			Do:     "see whether it is there; if it is lost for good, or was renamed, purge it with its GPUs and claims",
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
				Why:  "versions get on with each other, but a node may lack what a newer one does",
				Do:   "upgrade the older of the two",
			})
		}
	}
	return found
}
