// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"encoding/json"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// Owner is the task that holds a slice. The owner of a reservation is the task that it is
// for; the owner of units outside Nomad is their holder. Both have a generated ID in Alloc.
//
// In a claim all fields but Alloc, Node and Task may be shortened, see shorten: compare them
// by IsOf and IsOn.
type Owner struct {
	Namespace string   `json:"namespace"`
	Job       string   `json:"job"`
	Group     string   `json:"group"`
	Task      string   `json:"task"`
	Alloc     string   `json:"alloc"` // allocation ID
	Node      NodeID   `json:"node"`
	NodeName  NodeName `json:"node_name"`
}

// Is reports whether both are the same task. An allocation ID is unique in a cluster and a
// task's name in its allocation; the other fields are informational.
func (o Owner) Is(other Owner) bool { return o.Alloc == other.Alloc && o.Task == other.Task }

// IsOf reports whether the recorded owner is a task of the job.
func (o Owner) IsOf(namespace, job string) bool {
	return isNamed(o.Namespace, namespace) && isNamed(o.Job, job)
}

// IsOn reports whether the recorded owner is on the node of that name.
func (o Owner) IsOn(node NodeName) bool { return isNamed(string(o.NodeName), string(node)) }

// isFor reports whether a recorded reservation is for the task.
func (o Owner) isFor(task Owner) bool {
	return o.IsOf(task.Namespace, task.Job) && isNamed(o.Group, task.Group) && o.Task == task.Task
}

// String names the owner in messages: job, task and the start of the allocation ID, as
// Nomad's tools print it.
func (o Owner) String() string {
	alloc := o.Alloc
	if len(alloc) > 8 {
		alloc = alloc[:8]
	}
	return fmt.Sprintf("%s/%s (alloc %s)", o.Job, o.Task, alloc)
}

func (o Owner) validate() error {
	if o.Alloc == "" || o.Task == "" {
		return fmt.Errorf("owner %s: allocation and task are required: %w", o, ErrInvalid)
	}
	return nil
}

// ClaimState is the stage of a claim's life.
type ClaimState string

const (
	// Claimed is the state from the claim until the container runs.
	Claimed ClaimState = "claimed"
	// Running is the state once the driver has seen the container run.
	Running ClaimState = "running"

	// Reserved is the state of units that a planner reserves for a task that Nomad has
	// not placed yet. It expires, and it binds planners only.
	Reserved ClaimState = "reserved"
	// Requested is the state of units requested for use outside Nomad, until it is certain
	// that Nomad has not booked them. The device plugin no longer offers them.
	Requested ClaimState = "requested"
	// Held is the state of units held outside Nomad.
	Held ClaimState = "held"
)

// yields reports whether a task may take the units that Nomad has booked for it: a booking
// overrides reservations and requests.
func (s ClaimState) yields() bool { return s == Reserved || s == Requested }

// isTasks reports whether the claim belongs to a task.
func (s ClaimState) isTasks() bool { return s == Claimed || s == Running }

// OutsideNomad reports whether the units are used or requested outside Nomad. The device
// plugin must not offer them to Nomad.
func (s ClaimState) OutsideNomad() bool { return s == Requested || s == Held }

// Claim is the record that a task holds a slice: units of one GPU.
type Claim struct {
	Owner

	// Attempt identifies one start of a task. Only the attempt that made a claim repeats
	// or releases it, so a late release of an old attempt cannot free the units of a new
	// one.
	//
	// Begun orders the attempts of a task, and Engine is the Docker engine of the
	// container. Both are missing in claims of older versions, and in claims that no task
	// owns.
	Attempt string     `json:"attempt"`
	Begun   time.Time  `json:"begun,omitzero"`
	Engine  string     `json:"engine,omitempty"`
	State   ClaimState `json:"state"`

	Container string    `json:"container,omitempty"` // container ID, once it runs
	ClaimedAt time.Time `json:"claimed_at"`
	RunningAt time.Time `json:"running_at,omitzero"`
	StuckAt   time.Time `json:"stuck_at,omitzero"`   // since when its container cannot be stopped
	ExpiresAt time.Time `json:"expires_at,omitzero"` // of a claim that no task owns

	// Units is derived from the ledger's unit map when claims are listed.
	Units UnitSet `json:"-"`

	unknown keepjson.Fields
}

func (c Claim) name() string { return c.Owner.String() }

// NameFor names the claim's owner without revealing tasks of other namespaces.
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

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (c Claim) MarshalJSON() ([]byte, error) {
	type plain Claim
	return keepjson.Marshal(plain(c), c.unknown)
}

// UnmarshalJSON reads a claim and keeps fields of newer versions.
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
