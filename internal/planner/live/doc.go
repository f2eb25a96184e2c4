// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package live plans jobs for a running cluster: it reads Nomad and the allocation
// table, reserves the planned units, submits the job and follows its evaluation.
//
// The package planner decides the places; this one decides when to plan, and plans
// again when other tasks took the units first. Where to look:
//
//   - site.go: Site, Nomad and the table of one cluster
//   - read.go: the cluster at one moment
//   - run.go: Plan and Run; a lost race is planned again
//   - register.go: what is submitted, and the source that goes with it
//   - follow.go, deployment.go: an evaluation and a deployment, until they end
//   - queue.go: batch queues of node pools, and Nomad's node limit
//   - replan.go: new pins for jobs that wait or have a short list of nodes
//   - guard.go: does not submit a registered job again if it would lose fields
//   - watch.go: replans on events; stream.go reads Nomad's event stream, agenda.go queues
//     the jobs to check
package live
