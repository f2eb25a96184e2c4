// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package live plans jobs for a cluster that runs: it reads Nomad and the
// allocation table, reserves what a plan takes, submits the job and follows what
// Nomad makes of it.
//
// What to decide is in the package planner; here is when to look, and what to do
// when others were faster. Where to look:
//
//   - site.go: Site, the two servers that are asked
//   - read.go: the cluster at one moment
//   - run.go: Plan and Run; a lost race is planned again
//   - register.go: what is submitted, and the source that goes with it
//   - follow.go, deployment.go: an evaluation and a deployment, until Nomad is done with them
//   - replan.go: new pins for jobs that wait or whose list has become short
//   - guard.go: a registered job that would lose something is not submitted again
//   - watch.go: replan whenever Nomad's event stream says so; stream.go reads that, agenda.go
//     has what is to be looked at
package live
