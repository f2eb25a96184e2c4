// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package doctor finds inconsistencies in an allocation table: orphan claims, tasks
// without claims, unmanaged use, values that cannot be read, dead nodes.
//
// Diagnose is pure: it judges evidence that the caller has collected. Each finding
// states what was seen, why it is wrong, and what would fix it.
//
// Where to look: evidence.go is the input, finding.go the output, index.go the lookups.
// rules.go has the rules, one function each, with gone.go, hardware.go and overlap.go.
// apply.go applies a remedy.
package doctor
