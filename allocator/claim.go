package allocator

import (
	"encoding/json"
	"fmt"
	"time"
)

// Owner is the task that holds a slice.
type Owner struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Group     string `json:"group"`
	Task      string `json:"task"`
	Alloc     string `json:"alloc"`     // allocation ID
	Node      string `json:"node"`      // Nomad's node ID
	NodeName  string `json:"node_name"` // the node's name, for people
}

// Is reports whether both are the same task. An allocation ID is unique in a
// cluster and a task's name in its allocation; the rest is for people.
func (o Owner) Is(other Owner) bool { return o.Alloc == other.Alloc && o.Task == other.Task }

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
)

// Claim says that a task holds a slice: units of one GPU.
type Claim struct {
	Owner

	// Attempt tells one start of a task from the next. A claim is repeated
	// and released by the attempt that made it, so a late release of an old
	// attempt cannot free the units of a new one.
	Attempt string     `json:"attempt"`
	State   ClaimState `json:"state"`

	Container   string    `json:"container,omitempty"` // container ID, once it runs
	ClaimedAt   time.Time `json:"claimed_at"`
	RunningAt   time.Time `json:"running_at,omitzero"`
	Enforcement string    `json:"enforcement,omitempty"` // how the slice is held to its size
	PeakMiB     uint64    `json:"peak_mib,omitempty"`    // most memory seen in use, MiB

	// Units is derived from the ledger's unit map when claims are listed.
	Units UnitSet `json:"-"`

	unknown fields
}

// MarshalJSON writes the fields of this version and those it does not know.
func (c Claim) MarshalJSON() ([]byte, error) {
	type plain Claim
	return marshalKeeping(plain(c), c.unknown)
}

// UnmarshalJSON reads a claim and keeps the fields it does not know.
func (c *Claim) UnmarshalJSON(data []byte) error {
	type plain Claim
	unknown, err := unmarshalKeeping(data, (*plain)(c))
	c.unknown = unknown
	return err
}

var (
	_ json.Marshaler   = Claim{}
	_ json.Unmarshaler = (*Claim)(nil)
)
