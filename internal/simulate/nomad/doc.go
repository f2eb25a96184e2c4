// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad measures Nomad's own scheduler: the code that a Nomad server
// runs, on a state store in memory.
//
// Nodes are as the device plugin fingerprints them, with a device group per GPU and an
// instance per unit. Each task of the trace is a service job. A job may have the planner's
// pin, which steers the scheduler to the place that a policy chose. The policy then learns
// where Nomad placed the task.
//
// Where to look:
//
//   - scheduler.go: tasks in, places out; planner.Pinner pins the jobs
//   - cluster.go: the nodes; job.go: the jobs
package nomad
