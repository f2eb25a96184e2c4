// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// GPUState is what a node's device plugin last said of one of its GPUs.
// Memory is in MiB.
type GPUState struct {
	Schema      schema   `json:"schema"`
	Node        NodeName `json:"node"` // the node's host name
	Model       string   `json:"model"`
	Index       int      `json:"index"` // NVML index, for people; it may change at a reboot
	MemoryMiB   uint64   `json:"memory_mib"`
	ReservedMiB uint64   `json:"reserved_mib"` // kept back by the driver or by configuration
	UsedMiB     uint64   `json:"used_mib"`     // in use by all processes, when last written
	UnitMiB     uint64   `json:"unit_mib"`
	Units       int      `json:"units"`
	Health      string   `json:"health"` // "" if all units can be used, else the reason

	// UnmanagedMiB is memory in use that no slice explains.
	UnmanagedMiB uint64 `json:"unmanaged_mib,omitempty"`

	// Unhealthy are the units that are not offered now.
	Unhealthy UnitSet   `json:"unhealthy,omitempty"`
	UpdatedAt time.Time `json:"updated_at"`

	unknown keepjson.Fields
}

// NodeState is what a node's device plugin said of its node.
type NodeState struct {
	Schema   schema    `json:"schema"`
	Name     NodeName  `json:"name"`              // host name
	Version  string    `json:"version"`           // of this program
	Driver   string    `json:"driver"`            // NVIDIA driver version, "" if there is none
	Address  string    `json:"address,omitempty"` // by which it reaches other networks, "" if it has no route to them
	LastSeen time.Time `json:"last_seen"`

	// Boot identifies the machine since its last boot, and StartedAt is when its device
	// plugin started: by them PutNode notices a second machine with this host name.
	Boot      string    `json:"boot,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`

	// SharedUntil is set while another machine reports under this host name, and for
	// LeaseTime after its last report. The other fields are then those of either machine.
	SharedUntil time.Time `json:"shared_until,omitzero"`

	// GPUs are those that the device plugin last found, offered or not, sorted;
	// nil if it does not tell. See Lacks.
	GPUs []GPUID `json:"gpus,omitzero"`

	// Fault is why NVML as a whole cannot be read, "" if it can: no library, no driver.
	// Of GPUs that were read before, the health says so as well.
	Fault string `json:"fault,omitempty"`

	// LeaseSeconds is how long the node's lease lasts without being renewed;
	// 0 if it has none. See Snapshot.Liveness.
	LeaseSeconds int `json:"lease_seconds,omitempty"`

	unknown keepjson.Fields
}

// MarshalJSON writes the fields of this version and those it does not know.
func (s GPUState) MarshalJSON() ([]byte, error) {
	type plain GPUState
	return keepjson.Marshal(plain(s), s.unknown)
}

// UnmarshalJSON reads a state and keeps the fields it does not know.
func (s *GPUState) UnmarshalJSON(data []byte) error {
	type plain GPUState
	unknown, err := keepjson.Unmarshal(data, (*plain)(s))
	s.unknown = unknown
	return err
}

// MarshalJSON writes the fields of this version and those it does not know.
func (s NodeState) MarshalJSON() ([]byte, error) {
	type plain NodeState
	return keepjson.Marshal(plain(s), s.unknown)
}

// UnmarshalJSON reads a state and keeps the fields it does not know.
func (s *NodeState) UnmarshalJSON(data []byte) error {
	type plain NodeState
	unknown, err := keepjson.Unmarshal(data, (*plain)(s))
	s.unknown = unknown
	return err
}

// Lacks reports whether the node's device plugin no longer finds a GPU: it was taken
// out, or divided into other MIG instances, or the driver does not load. What is
// written of it is old. Where two machines share a host name the list proves nothing:
// the GPU may be the other machine's.
func (s NodeState) Lacks(gpu GPUID) bool {
	return s.GPUs != nil && s.SharedUntil.IsZero() && !slices.Contains(s.GPUs, gpu)
}

// otherMachine reports whether old was written by another machine while this device
// plugin was running.
func (s NodeState) otherMachine(old NodeState) bool {
	return old.Boot != "" && s.Boot != "" && old.Boot != s.Boot && !old.LastSeen.Before(s.StartedAt)
}

// check says why a state that was read cannot be one that was written.
func (s GPUState) check() error {
	switch {
	case s.Node == "":
		return errors.New("GPU state without a node")
	case s.Units < 0 || s.Units > maxUnits:
		return fmt.Errorf("units: %d, want 0 to %d", s.Units, maxUnits)
	case s.UnitMiB > maxUnitMiB || s.UnitMiB == 0 && s.Units > 0:
		return fmt.Errorf("unit_mib: %d, want 1 to %d", s.UnitMiB, maxUnitMiB)
	}
	for name, mib := range map[string]uint64{"memory_mib": s.MemoryMiB, "reserved_mib": s.ReservedMiB,
		"used_mib": s.UsedMiB, "unmanaged_mib": s.UnmanagedMiB} {
		if mib > maxMemoryMiB {
			return fmt.Errorf("%s: %d, want no more than %d", name, mib, uint64(maxMemoryMiB))
		}
	}
	return nil
}

func (s NodeState) check() error {
	if s.Name == "" {
		return errors.New("node state without a name")
	}
	return nil
}

// decodeNode reads the value of a node's key. One that names another node is as
// unreadable as nonsense: two keys must never stand for one node.
func decodeNode(name NodeName, value []byte) (NodeState, error) {
	node, err := decodeState[NodeState](value)
	if err == nil && value != nil && node.Name != name {
		return NodeState{}, fmt.Errorf("%w: the key of node %q has the state of node %q", ErrUnreadable, name, node.Name)
	}
	return node, err
}

// state is what a device plugin writes: GPUState or NodeState.
type state interface{ check() error }

// decodeState reads the value of a state key. No value is the zero state. An
// error matches ErrUnreadable.
func decodeState[T state](value []byte) (T, error) {
	var state, none T
	if value == nil {
		return none, nil
	}
	err := json.Unmarshal(value, &state)
	if err != nil {
		err = cmp.Or(isNewer(value, "schema"), err)
	}
	if err == nil {
		err = keepjson.CheckNames(value)
	}
	if err == nil {
		err = state.check()
	}
	if err != nil {
		return none, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return state, nil
}
