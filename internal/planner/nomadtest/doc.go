// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is a small Nomad for tests: its real scheduler and its real
// parser of job files, behind the part of its HTTP API that the planner uses.
// Its nodes run nothing; placed allocations count as running.
//
// node.go makes nodes with GPU memory as the device plugin offers it; nomad.go is the
// scheduler and its state; server.go is the API, with jobs.go for jobs, including fields
// that Nomad 1.6 does not know, events.go for the event stream, and queue.go for batch
// queues.
package nomadtest
