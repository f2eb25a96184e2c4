// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nomadtest is a small Nomad for tests: its real scheduler and its real
// reader of job files, behind as much of its HTTP API as the planner asks for.
// Nothing runs on its nodes; what is placed counts as running.
//
// node.go makes nodes with GPU memory, as the device plugin offers it; nomad.go
// is the scheduler and its state; server.go the API, with jobs.go for jobs, which it
// keeps with the fields that Nomad 1.6 does not know, events.go for the event
// stream, and queue.go for batch queues.
package nomadtest
