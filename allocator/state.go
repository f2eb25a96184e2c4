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

// GPUState is what a node's device plugin last reported of one of its GPUs. Memory is in MiB.
type GPUState struct {
	Schema      schema   `json:"schema"`
	Node        NodeName `json:"node"` // the node's host name
	Model       string   `json:"model"`
	Index       int      `json:"index"` // NVML index, informational; it may change at a reboot
	MemoryMiB   uint64   `json:"memory_mib"`
	ReservedMiB uint64   `json:"reserved_mib"` // reserved by the driver or by configuration
	UsedMiB     uint64   `json:"used_mib"`     // in use by all processes, as last written
	UnitMiB     uint64   `json:"unit_mib"`
	Units       int      `json:"units"`
	Health      string   `json:"health"` // "" if all units are healthy, else the reason

	// UnmanagedMiB is memory in use by processes without a slice, or beyond it.
	UnmanagedMiB uint64 `json:"unmanaged_mib,omitempty"`

	// Unhealthy are the units that are not offered now.
	Unhealthy UnitSet   `json:"unhealthy,omitempty"`
	UpdatedAt time.Time `json:"updated_at"`

	unknown keepjson.Fields
}

// NodeState is what a node's device plugin last reported of its node.
type NodeState struct {
	Schema   schema    `json:"schema"`
	Name     NodeName  `json:"name"`              // host name
	Version  string    `json:"version"`           // of this program
	Driver   string    `json:"driver"`            // NVIDIA driver version, "" if there is none
	Address  string    `json:"address,omitempty"` // of its default route, "" if it has none
	LastSeen time.Time `json:"last_seen"`

	// Boot identifies the machine's current boot, and StartedAt is when its device plugin
	// started: by these PutNode detects a second machine with this host name.
	Boot      string    `json:"boot,omitempty"`
	StartedAt time.Time `json:"started_at,omitzero"`

	// SharedUntil is set while another machine reports under this host name, and for
	// LeaseTime after its last report. The other fields are then those of either machine.
	SharedUntil time.Time `json:"shared_until,omitzero"`

	// GPUs are those that the device plugin last found, offered or not, sorted; nil if it
	// does not report them. See Lacks.
	GPUs []GPUID `json:"gpus,omitzero"`

	// Fault is why NVML as a whole cannot be read, such as a missing library or driver; ""
	// if it can. The health of GPUs that were read before has the same reason.
	Fault string `json:"fault,omitempty"`

	// LeaseSeconds is how long the node's lease lasts without being renewed;
	// 0 if it has none. See Snapshot.Liveness.
	LeaseSeconds int `json:"lease_seconds,omitempty"`

	unknown keepjson.Fields
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (s GPUState) MarshalJSON() ([]byte, error) {
	type plain GPUState
	return keepjson.Marshal(plain(s), s.unknown)
}

// UnmarshalJSON reads a state and keeps fields of newer versions.
func (s *GPUState) UnmarshalJSON(data []byte) error {
	type plain GPUState
	unknown, err := keepjson.Unmarshal(data, (*plain)(s))
	s.unknown = unknown
	return err
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (s NodeState) MarshalJSON() ([]byte, error) {
	type plain NodeState
	return keepjson.Marshal(plain(s), s.unknown)
}

// UnmarshalJSON reads a state and keeps fields of newer versions.
func (s *NodeState) UnmarshalJSON(data []byte) error {
	type plain NodeState
	unknown, err := keepjson.Unmarshal(data, (*plain)(s))
	s.unknown = unknown
	return err
}

// Lacks reports whether the node's device plugin no longer finds a GPU: it was removed or
// divided into other MIG instances, or the driver does not load. The GPU's state is then old.
// If two machines share a host name the list proves nothing: the GPU may be in the other
// machine.
func (s NodeState) Lacks(gpu GPUID) bool {
	return s.GPUs != nil && s.SharedUntil.IsZero() && !slices.Contains(s.GPUs, gpu)
}

// otherMachine reports whether old was written by another machine while this device
// plugin was running.
func (s NodeState) otherMachine(old NodeState) bool {
	return old.Boot != "" && s.Boot != "" && old.Boot != s.Boot && !old.LastSeen.Before(s.StartedAt)
}

// check returns an error if a state is invalid.
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

// decodeNode decodes the value of a node's key. A value that names another node is
// unreadable: two keys must never mean one node.
func decodeNode(name NodeName, value []byte) (NodeState, error) {
	node, err := decodeState[NodeState](value)
	if err == nil && value != nil && node.Name != name {
		return NodeState{}, fmt.Errorf("%w: the key of node %q has the state of node %q", ErrUnreadable, name, node.Name)
	}
	return node, err
}

// state is what a device plugin writes: GPUState or NodeState.
type state interface{ check() error }

// decodeState decodes the value of a state key. A nil value is the zero state. Errors match
// ErrUnreadable.
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
