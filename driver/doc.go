// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package driver is the task driver gpu-docker, or docker in place of Nomad's own: it runs a Nomad task in a Docker
// container that sees the GPUs whose memory was booked for it, and no others.
//
// It takes the same `config` block as Nomad's own Docker driver; docs/docker-driver.md says what is different, key by key. A
// task with a `device "nvidia/gpu-mem"` block gets, from the device plugin's Reserve, its bookings in DeviceEnv. The driver
// claims them in the allocation table before the container exists, pins the container to their GPUs, and releases the claim
// when the container is gone. A task without such a block sees no GPU.
//
// This package speaks with Nomad: each family of its calls has a file. What has rules of its own has a package:
//
//	attempt        starts of tasks until nothing is left of them; nothing else releases a claim
//	config         the operator's block and the job's block, with schemas and checks
//	containerspec  what the container is like, and what a job may not have
//	docker         the client of the Docker engine
//	images         images: pulled for a task, removed when no task uses them
//	injection      whether GPUs reach containers by the NVIDIA runtime or by CDI
//	label          the labels by which the driver recognizes its containers, and their names
//	logpipe        output into Nomad's pipes, over restarts of the plugin
//	netfile        hosts and resolv.conf of a group's network
//	netns          network namespaces that no process uses any more
//	staging        mounts of what was checked, in place of what a path names later
//	statefile      versions of the files in state_dir
//	taskfile       opens what a task could have changed, safely
//
// Where to look here:
//
//	plugin.go  about.go  engine.go    the plugin, its loops, and what it needs of Docker and of the table
//	start.go  claim.go  starts.go     StartTask, step by step; sources.go, netfiles.go, gpuhealth.go: parts of it
//	gpus.go                           what Nomad booked; applies the choice of package injection
//	network.go  sandboxes.go          a group's network, and pause containers that Nomad has forgotten
//	handle.go  store.go               running tasks, and what Nomad keeps of them
//	recover.go  watch.go  takeover.go tasks of an earlier process, and of Nomad's own driver; how a task's end is noticed
//	stop.go  inspect.go               WaitTask, StopTask, SignalTask, DestroyTask; InspectTask
//	assert.go  reconcileloop.go       loops: claims of running tasks, and claims without a task
//	sweep.go                          loops: unfinished ends, containers without a task, unused images
//	forgotten.go                      tasks that Nomad has forgotten, and the end of a task
//	succession.go  agent.go           whether another process or agent has replaced this one
//	logs.go  exec.go  stats.go  events.go  fingerprint.go  cpuset.go   one subject each
//	discretion.go                     which names of other tasks a job author may read
//
// # What holds
//
// No container runs without a claim, and no claim ends before its container is proven gone. Package attempt records a start before
// anything is taken for it, so the plugin, the agent or the machine may die at any moment.
//
// The pin is written last into a container's environment. Neither the job, nor its templates, nor the image can change it. The
// driver refuses a start that asks the NVIDIA runtime for a GPU in any other way.
//
// A daemon or a table that does not answer proves nothing, and neither does the answer of another daemon than the one that has the
// container.
//
// A task can change what is in its allocation's directory. The driver opens all of it through package taskfile; its own state is in
// state_dir.
//
// The package depends on package docker for plain types and errors only; the engine and the table come in through New.
package driver
