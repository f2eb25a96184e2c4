// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"time"

	"nomad-gpu-mem/allocator"
)

// schema is the version of a Report as JSON. Adding a field does not change
// it; docs/cli.md describes it.
const schema = 1

// Report is the contents of `status`. Totals are derived from the table when it is read. All
// memory is in MiB.
type Report struct {
	Schema   int       `json:"schema"`
	Table    string    `json:"table"`         // its location
	Version  uint64    `json:"table_version"` // grows with every change
	At       time.Time `json:"at"`
	Total    Total     `json:"total"`
	Nodes    []Node    `json:"nodes"`    // by name
	Problems []Problem `json:"problems"` // values that cannot be read, by key
}

// Total sums up the GPUs that are shown.
type Total struct {
	Nodes  int `json:"nodes"`
	GPUs   int `json:"gpus"`
	Claims int `json:"claims"`
	Memory
}

// Memory is the memory of one or several GPUs, in MiB. Offered is the sum of claimed, free
// and unavailable. It is less than the whole: some memory is reserved, and a rest smaller
// than a unit is not offered.
type Memory struct {
	WholeMiB       uint64 `json:"memory_mib"`
	OfferedMiB     uint64 `json:"offered_mib"`     // in units
	ClaimedMiB     uint64 `json:"claimed_mib"`     // in claims
	FreeMiB        uint64 `json:"free_mib"`        // available now
	UnavailableMiB uint64 `json:"unavailable_mib"` // neither claimed nor available: unhealthy, or see the notes
	UsedMiB        uint64 `json:"used_mib"`        // in use by all processes, as last reported by the device plugin
}

// Node is a node with its GPUs.
type Node struct {
	Name     allocator.NodeName `json:"name"`
	Reported bool               `json:"reported"` // by its device plugin; the following are empty if not
	Version  string             `json:"version,omitempty"`
	Driver   string             `json:"driver,omitempty"`
	Address  string             `json:"address,omitempty"`
	LastSeen time.Time          `json:"last_seen,omitzero"`
	Fault    string             `json:"fault,omitempty"` // why its GPUs cannot be read

	// Liveness is "alive", "dead", or "" if the node has no lease. Dead is also true for a
	// silent node without a lease: nothing of it is available.
	Liveness allocator.Liveness `json:"liveness"`
	Dead     bool               `json:"dead"`
	Memory
	GPUs []GPU `json:"gpus"` // by index
}

// GPU is one GPU with its claims.
type GPU struct {
	ID        allocator.GPUID   `json:"id"`
	Reported  bool              `json:"reported"` // by its device plugin
	Index     int               `json:"index"`
	Model     string            `json:"model,omitempty"`
	Health    string            `json:"health"` // "" if all units are healthy, else the reason
	Unhealthy allocator.UnitSet `json:"unhealthy_units,omitempty"`
	Cordon    *Cordon           `json:"cordon,omitempty"`
	UnitMiB   uint64            `json:"unit_mib"`
	Units     int               `json:"units"`
	Map       string            `json:"map"` // a character per unit: a claim's mark, "." free, "!" unavailable
	Memory
	UnmanagedMiB    uint64    `json:"unmanaged_mib"`    // in use by processes that hold no slice, or by tasks beyond theirs
	UnattributedMiB uint64    `json:"unattributed_mib"` // more in use than claimed, by unknown processes
	UpdatedAt       time.Time `json:"updated_at,omitzero"`
	Claims          []Claim   `json:"claims"` // oldest first
	Notes           []string  `json:"notes"`  // remarks for the operator
}

// Cordon keeps new tasks off a GPU.
type Cordon struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"`

	// Release means that the device plugin is to close its NVML session.
	Release bool `json:"release,omitempty"`
}

// Claim is a slice of a GPU: of a task, reserved for a task, or held outside Nomad.
type Claim struct {
	Mark string `json:"mark"` // its character in the map
	allocator.Owner
	State     allocator.ClaimState `json:"state"`
	Container string               `json:"container,omitempty"`
	Units     allocator.UnitSet    `json:"units"`
	UnitCount int                  `json:"unit_count"`
	MiB       uint64               `json:"mib"`
	ClaimedAt time.Time            `json:"claimed_at"`
	RunningAt time.Time            `json:"running_at,omitzero"`
	ExpiresAt time.Time            `json:"expires_at,omitzero"`
}

// Problem is a value of the table that cannot be read.
type Problem struct {
	Key   string `json:"key"` // below the table's prefix
	Error string `json:"error"`
}

// Filter selects the GPUs to show. The zero Filter shows all.
type Filter struct {
	GPU  string // a UUID or the start of one
	Node allocator.NodeName
}

// Of makes a report of a snapshot. Problems are never filtered: a value
// that cannot be read may concern any GPU.
func Of(snapshot *allocator.Snapshot, only Filter, now time.Time) Report {
	r := Report{
		Schema:   schema,
		Version:  snapshot.Version,
		At:       now,
		Nodes:    newNodes(snapshot, only, now),
		Problems: []Problem{},
	}
	for _, node := range r.Nodes {
		r.Total.Nodes++
		r.Total.GPUs += len(node.GPUs)
		r.Total.Memory.Add(node.Memory)
		for _, gpu := range node.GPUs {
			r.Total.Claims += len(gpu.Claims)
		}
	}
	for _, problem := range snapshot.Problems {
		r.Problems = append(r.Problems, Problem{Key: problem.Key, Error: problem.Err.Error()})
	}
	return r
}

// Add adds the amounts of another memory.
func (m *Memory) Add(other Memory) {
	m.WholeMiB += other.WholeMiB
	m.OfferedMiB += other.OfferedMiB
	m.ClaimedMiB += other.ClaimedMiB
	m.FreeMiB += other.FreeMiB
	m.UnavailableMiB += other.UnavailableMiB
	m.UsedMiB += other.UsedMiB
}
