// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package file keeps the allocation table in one file, for a node without
// Consul. The device plugin, the task driver and people's commands share it.
//
// The file is JSON, made to be read with cat. It is replaced as a whole: the
// next content is written beside it, synced and renamed over it, so that a
// process killed at any moment leaves the old content or the new, and readers
// need no lock. Writers take turns by an flock on a second file, which the
// kernel drops when its holder dies. Start reading at Store.Apply.
//
// A process decodes a content once, as long as the file stays the same; see
// lastRead.
//
// A file that cannot be read is an error and is never overwritten.
//
// Everyone on the node may read the file: it holds names and sizes, no secrets,
// and whoever wonders where the GPU memory went should need no special rights.
// The lock file is for the owner alone, or any user could stop all tasks from
// starting by holding it.
package file
