// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package planner decides where the tasks of a Nomad job should go, and writes
// that into the job, so that Nomad books what was planned.
//
// Nomad ranks nodes by CPU and host memory and takes any GPU of a node that
// fits. Its choice cannot be changed afterwards, but a job can steer it: constraints
// and affinities, here called a pin, name the nodes and GPUs that Nomad should
// take. See Pin for the three kinds.
//
// PlanJob does all planning. It is a pure function of a job and a Cluster, the state
// of Nomad and the allocation table at one moment. Which node and GPU is best is decided in allocator/placement. The package live reads a Cluster,
// submits jobs and follows them; the package webhook answers admission proxies.
//
// # Where to look
//
//	plan.go        PlanJob, and the Plan that it returns
//	cluster.go     Cluster, and the picture that placement decides on
//	jobjson.go     Document: a job as JSON, which keeps every field
//	patch.go       the patch that writes a plan into a job's JSON; tree.go finds the places
//	lost.go        which fields one version of a job's JSON has and another lacks
//	ask.go         what a job's tasks ask for: device blocks, meta, profiles
//	judge.go       which nodes and GPUs a job allows, by Nomad's own code
//	planning.go    the plan of one job: its groups, and the picture they share
//	place.go       asks package placement for a place for each instance; everywhere.go: for system jobs
//	size.go        a group's CPU and host memory, and counts for asks that fit nowhere
//	limit.go       which GPUs an ask is limited to: whole GPUs, profiles
//	apart.go       several asks of one task: a range of GPU indexes for each
//	pin.go         which pin a group gets, and what is written for it
//	pinner.go      the same pins for places that a caller has chosen
//	mark.go        writes what the planner owns in a group, and removes it again
//	queue.go       jobs that a batch queue holds back
//	keep.go        running groups keep their pins
//	shortage.go    what does not fit, and by how much
//	reserve.go     the reservations that go with a plan
//	replan.go      which registered jobs should be planned again
//	outcome.go     whether Nomad did as planned
//
// # What must hold
//
// A job without an ask for nvidia/gpu-mem stays unchanged. A running group
// that asks for the same as before keeps its affinities and device blocks
// unchanged: Nomad restarts tasks when one of these changes, but not when a
// group's constraint does. A group that fits nowhere is not confined to nodes,
// so that Nomad can start it wherever units become free first.
package planner
