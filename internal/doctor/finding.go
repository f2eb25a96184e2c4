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
	Leak       Kind = "leak"         // a claim without a task
	Phantom    Kind = "phantom"      // a task or container without a claim
	Squatter   Kind = "squatter"     // memory in use by processes without a claim
	Overlap    Kind = "overlap"      // units that two tasks were given
	Unreadable Kind = "unreadable"   // a value that cannot be read
	DeadNode   Kind = "dead node"    // a node that has lost its lease
	Blind      Kind = "no NVML"      // a node that cannot read its GPUs
	SharedName Kind = "shared name"  // two machines with one host name
	Overclaim  Kind = "overclaim"    // claims that exceed a GPU's memory
	Skew       Kind = "version skew" // a node with another version than the rest
	GoneGPU    Kind = "gone GPU"     // the state of a GPU that no node has any more
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind   Kind               `json:"kind"`
	Node   allocator.NodeName `json:"node,omitempty"`
	GPU    allocator.GPUID    `json:"gpu,omitempty"`
	Task   string             `json:"task,omitempty"`  // job, task and allocation
	Key    string             `json:"key,omitempty"`   // of the table
	Minor  bool               `json:"minor,omitempty"` // it harms no task and no plan
	What   string             `json:"what"`            // what is seen
	Why    string             `json:"why"`             // why that is wrong, and what it costs
	Do     string             `json:"do"`              // what would mend it
	Remedy Remedy             `json:"remedy"`
}

// Remedy is a change of the table that mends a finding. The zero Remedy is none:
// somebody has to act elsewhere.
type Remedy struct {
	Action Action `json:"action,omitempty"`
	Safe   bool   `json:"safe,omitempty"` // it is proven that nothing running loses anything

	claim    allocator.Claim
	gpu      allocator.GPUID
	key      string
	node     allocator.NodeName
	lastSeen time.Time                  // of a node or a GPU
	spare    func(allocator.Claim) bool // claims that a purge leaves alone
}

// Action is what a remedy does.
type Action string

// What remedies do.
const (
	Release   Action = "release"    // one claim on one GPU
	PurgeKey  Action = "purge key"  // that cannot be read
	PurgeNode Action = "purge node" // with its GPUs and their claims
	PurgeGPU  Action = "purge GPU"  // that is gone and has no claims
)
