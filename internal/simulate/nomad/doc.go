// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nomad measures Nomad's own scheduler: the code that a Nomad server
// runs, on a state store in memory.
//
// Nodes look as the device plugin makes them, with a device group for each GPU
// and an instance for each unit; each task of the trace is a service job of its
// own. A job may carry a pin, which steers the scheduler to the place that a
// policy has chosen; what Nomad then does is what the policy is told.
//
// Where to look:
//
//   - scheduler.go: tasks in, places out
//   - cluster.go: the nodes; job.go: the jobs
//   - pin.go: what is written into a job to steer it
package nomad
