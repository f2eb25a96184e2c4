// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package planner decides where the tasks of a Nomad job should go, and writes
// that into the job, so that Nomad books what was planned.
//
// Nomad ranks nodes by CPU and host memory and takes any GPU of a node that
// fits. It cannot be told otherwise after the fact, but it can before: a job's
// constraints and affinities, here called a pin, say which nodes and GPUs it
// should take. See Pin for the three there are.
//
// Make is the whole of it: a pure function of a job and a Cluster, which is what
// Nomad and the allocation table said a moment ago. The package live reads one,
// submits jobs and follows them; the package webhook answers admission proxies.
//
// # Where to look
//
//	plan.go        Make, and the Plan that it returns
//	cluster.go     Cluster, and the picture that placement decides on
//	jobjson.go     Document: a job as JSON, which keeps every field
//	patch.go       the patch that writes a plan into a job's JSON; tree.go finds the places
//	lost.go        what of a job's JSON another has not
//	ask.go         what a job's tasks ask for: device blocks, meta, profiles
//	judge.go       which nodes and GPUs a job allows, by Nomad's own code
//	planning.go    the work on one job: its groups, and the picture they share
//	place.go       places for the instances of a group; everywhere.go of system jobs
//	size.go        what a group takes besides, and counts of what fits nowhere
//	limit.go       what GPUs an ask is limited to: whole GPUs, profiles
//	apart.go       several asks of one task: a range of GPU indexes for each
//	pin.go         which pin a group gets, and what is written for it
//	pinner.go      the same pins for places that a caller has chosen
//	mark.go        what in a group is the planner's: writes it, and takes it out again
//	queue.go       jobs that a batch queue holds back
//	keep.go        groups that run keep what they have
//	shortage.go    what does not fit, and by how much
//	book.go        the reservations that go with a plan
//	replan.go      which registered jobs should be planned again
//	outcome.go     whether Nomad did as planned
//
// # What must hold
//
// A job without an ask for nvidia/gpu-mem comes back as it is. A group that runs
// and asks for the same as before keeps its affinities and device blocks to the
// letter: Nomad restarts tasks when one of them changes, and does not when a
// constraint does. A group that does not fit anywhere is confined to no nodes,
// so that Nomad can start it wherever room comes up first.
package planner
