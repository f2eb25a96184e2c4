// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package file keeps the allocation table in one file, for a node without
// Consul. The device plugin, the task driver and the commands share it.
//
// The file is JSON, readable with cat. It is replaced as a whole: the next
// content is written beside it, synced and renamed over it, so that a process
// killed at any moment leaves the old content or the new, and readers need no
// lock. Writers lock a second file with flock, which the kernel unlocks when
// its holder dies. Start reading at Store.Apply.
//
// Where to look: store.go reads and writes, replace.go replaces the file,
// table.go has its format, watch.go follows it, last.go caches its content.
//
// A process decodes the file once per change; see lastRead.
//
// A file that cannot be read is an error and is never overwritten.
//
// All users of the node may read the file: it holds names and sizes, no
// secrets, so reading it needs no privilege. Only the owner may open the lock
// file, since any user could stop all tasks from starting by holding it.
package file
