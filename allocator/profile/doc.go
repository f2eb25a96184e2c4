// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package profile computes how much GPU memory a task needs from the task's attributes.
//
// A Formula is a base plus an amount for each unit of some attributes, such as the batch
// size, within bounds. Need returns MiB and Units turns MiB into units of a GPU. Missing or
// invalid attributes are errors: a task with too little memory fails hours later, and one
// with too much keeps others waiting.
//
// The package imports the standard library only. The table keeps the rows; see
// allocator.Profile.
package profile
