// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"time"

	"nomad-gpu-mem/allocator"
)

// Evidence is what is known. The table always is; the rest makes for more
// findings, and for more that can be mended without asking.
type Evidence struct {
	Now     time.Time
	Table   *allocator.Snapshot
	Version string // of this program
	Nomad   *Nomad // nil if it was not asked
	Local   *Local // nil if this machine's containers are not known
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
	Ended    bool // its client said that all its tasks have ended
	Lost     bool // its node is lost: Nomad has given it up. A disconnected node's is not yet
	Tasks    map[string]Task
}

// Task is a task of an allocation that has device blocks of ours, or none.
type Task struct {
	Running bool
	Ended   bool // for good
	Since   time.Time
	Units   map[allocator.GPUID]allocator.UnitSet // that Nomad booked
}

// Local is what this machine's container engine knows.
type Local struct {
	Node       allocator.NodeName // this machine
	Engine     string             // ID of its container engine; empty if not known
	Containers []Container
}

// Container is one that the task driver made.
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

// provesGone reports whether this machine is the claim's, and so the absence of
// a container proves that the task is gone. Two machines may have one host name: where
// the claim names its engine, that counts.
func (l *Local) provesGone(claim allocator.Claim) bool {
	if l == nil || l.runs(claim) {
		return false
	}
	if claim.Engine != "" && l.Engine != "" {
		return claim.Engine == l.Engine
	}
	return claim.IsOn(l.Node)
}

// isForeign reports whether the claim is of a node that this Nomad does not know: of
// another cluster that uses the same table, or of a node that was removed long ago. Its
// tasks are not Nomad's to judge.
func (e Evidence) isForeign(claim allocator.Claim) bool {
	return e.Nomad != nil && e.Nomad.Nodes != nil && claim.Node != "" && !e.Nomad.Nodes[claim.Node]
}

// mayLive reports whether Nomad or this machine's engine says that the claim's task may
// run, or that they cannot know: it is another cluster's.
func (e Evidence) mayLive(claim allocator.Claim) bool {
	if e.Local.runs(claim) || e.isForeign(claim) {
		return true
	}
	alloc, known := e.Nomad.allocs()[claim.Alloc]
	return known && !alloc.Ended && !alloc.Lost && !alloc.Tasks[claim.Task].Ended
}
