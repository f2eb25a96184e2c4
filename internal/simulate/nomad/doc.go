// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad measures Nomad's own scheduler: the code that a Nomad server
// runs, on a state store in memory.
//
// Nodes look as the device plugin makes them, with a device group for each GPU
// and an instance for each unit; each task of the trace is a service job of its
// own. A job may carry the planner's pin, which steers the scheduler to the place
// that a policy has chosen. The policy then learns where Nomad put the task.
//
// Where to look:
//
//   - scheduler.go: tasks in, places out; planner.Pinner pins the jobs
//   - cluster.go: the nodes; job.go: the jobs
package nomad
