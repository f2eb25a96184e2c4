// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package doctor finds what is wrong in an allocation table: claims without
// tasks, tasks without claims, memory that nobody accounts for, values that
// cannot be read, nodes that are gone.
//
// Diagnose is pure: it judges evidence that others have collected, and says of
// each finding what is seen, why that is wrong, and what would be done about it.
// evidence.go is what it can be told, rules.go its rules, one function each.
package doctor
