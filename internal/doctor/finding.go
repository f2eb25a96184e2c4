// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"time"

	"nomad-gpu-mem/allocator"
)

// Kind is a class of findings.
type Kind string

// The kinds of findings.
const (
	Leak       Kind = "leak"         // an orphan claim: its task is gone
	Phantom    Kind = "phantom"      // a task or container without a claim
	Squatter   Kind = "squatter"     // unmanaged use: by processes without a claim
	Overlap    Kind = "overlap"      // units that two tasks have
	Unreadable Kind = "unreadable"   // a value that cannot be read
	DeadNode   Kind = "dead node"    // a node that has lost its lease
	Blind      Kind = "no NVML"      // a node that cannot read its GPUs
	SharedName Kind = "shared name"  // two machines with one host name
	Overclaim  Kind = "overclaim"    // claims that exceed a GPU's memory
	Skew       Kind = "version skew" // a node with another version than the rest
	GoneGPU    Kind = "gone GPU"     // the state of a GPU that no node has
)

// Finding is one inconsistency.
type Finding struct {
	Kind   Kind               `json:"kind"`
	Node   allocator.NodeName `json:"node,omitempty"`
	GPU    allocator.GPUID    `json:"gpu,omitempty"`
	Task   string             `json:"task,omitempty"`  // job, task and allocation
	Key    string             `json:"key,omitempty"`   // in the table
	Minor  bool               `json:"minor,omitempty"` // harms no task and no plan
	What   string             `json:"what"`            // what was seen
	Why    string             `json:"why"`             // why that is wrong, and what it costs
	Do     string             `json:"do"`              // what would fix it
	Remedy Remedy             `json:"remedy"`
}

// Remedy is a change of the table that fixes a finding. The zero Remedy means that the
// operator has to act elsewhere.
type Remedy struct {
	Action Action `json:"action,omitempty"`
	Safe   bool   `json:"safe,omitempty"` // proven to harm no running task

	claim    allocator.Claim
	gpu      allocator.GPUID
	key      string
	node     allocator.NodeName
	lastSeen time.Time                  // of a node or a GPU
	spare    func(allocator.Claim) bool // reports claims that a purge keeps
}

// Action is what a remedy does.
type Action string

// The actions of remedies.
const (
	Release   Action = "release"    // one claim on one GPU
	PurgeKey  Action = "purge key"  // a value that cannot be read
	PurgeNode Action = "purge node" // a node with its GPUs and their claims
	PurgeGPU  Action = "purge GPU"  // the state of a GPU that is gone and has no claims
)
