// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import "time"

// Kind is an invariant that can be violated.
type Kind string

// The invariants.
const (
	Double      Kind = "two running containers on one unit"
	Unclaimed   Kind = "running container without a claim"
	Orphan      Kind = "claim without a running container"
	Misbooked   Kind = "claim of other units than booked"
	Exposed     Kind = "container sees another GPU"
	Overwritten Kind = "unreadable ledger overwritten"
	Lost        Kind = "unit cannot be sold again"
)

// Kinds lists all invariants, in the order of the report.
var Kinds = []Kind{Double, Unclaimed, Orphan, Misbooked, Exposed, Overwritten, Lost}

// Violation is one breach of an invariant.
type Violation struct {
	Kind Kind      `json:"kind"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}
