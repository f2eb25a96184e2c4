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
}

// Alloc is an allocation.
type Alloc struct {
	Job      string
	NodeName string
	Ended    bool // its client said that all its tasks have ended
	Lost     bool // its client is gone: nobody knows
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
	Node       string // this machine's host name, as in the table
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
// a container proves that the task is gone.
func (l *Local) provesGone(claim allocator.Claim) bool {
	return l != nil && claim.IsOn(l.Node) && !l.runs(claim)
}
