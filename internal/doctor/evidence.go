// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"time"

	"nomad-gpu-mem/allocator"
)

// Evidence is the input of Diagnose. The table is always present; the rest allows more
// findings, and more of them to be fixed without asking.
type Evidence struct {
	Now     time.Time
	Table   *allocator.Snapshot
	Version string // of this program
	Nomad   *Nomad // nil if Nomad was not queried
	Local   *Local // nil if this machine's containers are unknown
}

// Nomad is what Nomad's servers know.
type Nomad struct {
	Allocs map[string]Alloc // by ID; all of them, in all namespaces
	Nodes  map[allocator.NodeID]bool
}

// Alloc is an allocation.
type Alloc struct {
	Job      string
	NodeName allocator.NodeName
	Ended    bool // its client reported that all its tasks have ended
	Lost     bool // Nomad has marked it lost; not yet so while its node is only disconnected
	Tasks    map[string]Task
}

// Task is a task of an allocation, with or without GPU memory.
type Task struct {
	Running bool
	Ended   bool // for good
	Since   time.Time
	Units   map[allocator.GPUID]allocator.UnitSet // booked by Nomad
}

// Local is what this machine's container engine knows.
type Local struct {
	Node       allocator.NodeName // this machine
	Engine     string             // ID of its container engine; empty if unknown
	Containers []Container
}

// Container is a container that the task driver created.
type Container struct {
	Name    string
	Alloc   string
	Attempt string // the claim's
	GPUs    []allocator.GPUID
	Running bool
	Since   time.Time
}

// runs reports whether a container of the claim's attempt runs on this machine.
func (l *Local) runs(claim allocator.Claim) bool {
	if l == nil {
		return false
	}
	for _, c := range l.Containers {
		if c.Running && c.Attempt == claim.Attempt {
			return true
		}
	}
	return false
}

// provesGone reports whether the absence of a container on this machine proves that the
// claim's task is gone: the claim is from this machine. Two machines may have one host name,
// so the engine's ID decides if the claim has one.
func (l *Local) provesGone(claim allocator.Claim) bool {
	if l == nil || l.runs(claim) {
		return false
	}
	if claim.Engine != "" && l.Engine != "" {
		return claim.Engine == l.Engine
	}
	return claim.IsOn(l.Node)
}

// isForeign reports whether this Nomad does not know the claim's node: it is in another
// cluster that uses the same table, or was removed long ago. Then this Nomad says nothing
// about the claim's task.
func (e Evidence) isForeign(claim allocator.Claim) bool {
	return e.Nomad != nil && e.Nomad.Nodes != nil && claim.Node != "" && !e.Nomad.Nodes[claim.Node]
}

// mayLive reports whether the claim's task may run, by Nomad or this machine's engine, or
// belongs to another cluster.
func (e Evidence) mayLive(claim allocator.Claim) bool {
	if e.Local.runs(claim) || e.isForeign(claim) {
		return true
	}
	alloc, known := e.Nomad.allocs()[claim.Alloc]
	return known && !alloc.Ended && !alloc.Lost && !alloc.Tasks[claim.Task].Ended
}
