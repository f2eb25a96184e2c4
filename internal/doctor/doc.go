// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package doctor finds inconsistencies in an allocation table: orphan claims, tasks
// without claims, unmanaged use, values that cannot be read, dead nodes.
//
// Diagnose is pure: it judges evidence that the caller has collected. Each finding
// states what was seen, why it is wrong, and what would fix it.
//
// Where to look:
//
//	evidence.go   the input; index.go: lookups in it
//	finding.go    the output
//	rules.go      rules about claims and tasks, one function each
//	gonegpus.go   rules about GPUs that no node has any more
//	hardware.go   rules about machines: claims beyond a GPU's memory, shared names, nodes that read no GPU
//	overlap.go    rules about units that two tasks have
//	apply.go      applies a remedy
//
// The health of a GPU that its node still lists is not a finding: `status` shows it.
package doctor
