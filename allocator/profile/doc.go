// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package profile computes how much GPU memory a task needs from what is known
// of the task: the task-resource table of the cluster.
//
// A Formula is one row of that table: a base plus so much for each unit of some
// attributes, such as the batch size, within bounds. Need gives MiB and Units
// turns MiB into units of a GPU; both refuse to guess, since a task with too
// little memory fails hours later and one with too much keeps others waiting.
//
// The package imports the standard library only. The table keeps the rows; see
// allocator.Profile.
package profile
