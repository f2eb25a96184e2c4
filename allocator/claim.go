// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"encoding/json"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// Owner is the task that holds a slice. The owner of a reservation is the task
// it is made for, and that of units outside Nomad a person; in place of an
// allocation's they have an ID of their own.
//
// In a claim all but Alloc, Node and Task may be shortened, see shorten: compare
// them by IsOf and IsOn.
type Owner struct {
	Namespace string   `json:"namespace"`
	Job       string   `json:"job"`
	Group     string   `json:"group"`
	Task      string   `json:"task"`
	Alloc     string   `json:"alloc"` // allocation ID
	Node      NodeID   `json:"node"`
	NodeName  NodeName `json:"node_name"`
}

// Is reports whether both are the same task. An allocation ID is unique in a
// cluster and a task's name in its allocation; the rest is for people.
func (o Owner) Is(other Owner) bool { return o.Alloc == other.Alloc && o.Task == other.Task }

// IsOf reports whether the owner that a claim records is one of the job's.
func (o Owner) IsOf(namespace, job string) bool {
	return isNamed(o.Namespace, namespace) && isNamed(o.Job, job)
}

// IsOn reports whether the owner that a claim records is on the node of that name.
func (o Owner) IsOn(node NodeName) bool { return isNamed(string(o.NodeName), string(node)) }

// isFor reports whether a reservation, as it is recorded, was made for the task.
func (o Owner) isFor(task Owner) bool {
	return o.IsOf(task.Namespace, task.Job) && isNamed(o.Group, task.Group) && o.Task == task.Task
}

// String names the owner for people: job, task and the start of the
// allocation ID, as Nomad's own tools print it.
func (o Owner) String() string {
	alloc := o.Alloc
	if len(alloc) > 8 {
		alloc = alloc[:8]
	}
	return fmt.Sprintf("%s/%s (alloc %s)", o.Job, o.Task, alloc)
}

func (o Owner) validate() error {
	if o.Alloc == "" || o.Task == "" {
		return fmt.Errorf("owner %s: allocation and task are needed: %w", o, ErrInvalid)
	}
	return nil
}

// ClaimState is how far a claim's life has come.
type ClaimState string

const (
	// Claimed is the state from the moment the units are taken until the
	// container runs.
	Claimed ClaimState = "claimed"
	// Running is the state once the container was seen to run.
	Running ClaimState = "running"

	// Reserved is the state of units that a planner keeps for a task which
	// Nomad has not placed yet. It expires, and it binds planners only.
	Reserved ClaimState = "reserved"
	// Requested is the state of units that a person wants outside Nomad, until
	// it is certain that Nomad has not sold them. The device plugin offers
	// them no longer.
	Requested ClaimState = "requested"
	// Held is the state of units that a person has outside Nomad.
	Held ClaimState = "held"
)

// yields reports whether a task that Nomad booked may take the units: Nomad's
// booking outranks every wish.
func (s ClaimState) yields() bool { return s == Reserved || s == Requested }

// isTasks reports whether the state is that of a task's claim.
func (s ClaimState) isTasks() bool { return s == Claimed || s == Running }

// OutsideNomad reports whether the claim is a person's and not a task's. Nomad
// must not be offered its units.
func (s ClaimState) OutsideNomad() bool { return s == Requested || s == Held }

// Claim says that a task holds a slice: units of one GPU.
type Claim struct {
	Owner

	// Attempt tells one start of a task from the next. A claim is repeated
	// and released by the attempt that made it, so a late release of an old
	// attempt cannot free the units of a new one.
	//
	// Begun orders the attempts of a task, and Engine is the Docker engine that
	// has the container. Both are missing in claims of older versions, and in
	// those that are no task's.
	Attempt string     `json:"attempt"`
	Begun   time.Time  `json:"begun,omitzero"`
	Engine  string     `json:"engine,omitempty"`
	State   ClaimState `json:"state"`

	Container string    `json:"container,omitempty"` // container ID, once it runs
	ClaimedAt time.Time `json:"claimed_at"`
	RunningAt time.Time `json:"running_at,omitzero"`
	StuckAt   time.Time `json:"stuck_at,omitzero"`   // since when its container cannot be ended
	ExpiresAt time.Time `json:"expires_at,omitzero"` // of a claim that is no task's

	// Units is derived from the ledger's unit map when claims are listed.
	Units UnitSet `json:"-"`

	unknown keepjson.Fields
}

func (c Claim) name() string { return c.Owner.String() }

// NameFor names the claim's owner to those who may know the tasks of one namespace only.
func (c Claim) NameFor(namespace string) string {
	switch {
	case c.State.OutsideNomad():
		return "a claim outside Nomad"
	case !isNamed(c.Namespace, namespace):
		return "a task of another namespace"
	default:
		return c.name()
	}
}

// MarshalJSON writes the fields of this version and those it does not know.
func (c Claim) MarshalJSON() ([]byte, error) {
	type plain Claim
	return keepjson.Marshal(plain(c), c.unknown)
}

// UnmarshalJSON reads a claim and keeps the fields it does not know.
func (c *Claim) UnmarshalJSON(data []byte) error {
	type plain Claim
	unknown, err := keepjson.Unmarshal(data, (*plain)(c))
	c.unknown = unknown
	return err
}

var (
	_ json.Marshaler   = Claim{}
	_ json.Unmarshaler = (*Claim)(nil)
)
