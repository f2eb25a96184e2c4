// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package driver is the task driver gpu-docker, or docker in place of Nomad's own: it runs a Nomad task in a Docker
// container that sees the GPUs whose memory was booked for it, and no others.
//
// It takes the same `config` block as Nomad's own Docker driver: docs/docker-driver.md
// says what is different, key by key. A task with a `device "nvidia/gpu-mem"` block
// gets, from the device plugin's Reserve, its bookings in DeviceEnv. The driver claims
// them in the allocation table before the container exists, pins the container to
// their GPUs, and gives the claim back when the container is gone. A task without such
// a block sees no GPU at all.
//
// Where to look:
//
//	plugin.go  about.go               the plugin, its configuration and its loops
//	config.go  configspec.go          the operator's block
//	taskconfig.go  taskspec.go        the job's config block; taskcheck.go: what can be wrong with it; blame.go: what Docker finds
//	start.go  claim.go                StartTask, step by step; sources.go, gpuhealth.go: what a start checks again at its end
//	bookings.go  pin.go  env.go       what was booked, and how it decides the environment; observer.go: jobs that see all GPUs and hold none
//	container.go  container_*.go      the container, one subject a file; container_access.go: what of its mounts a task may write to; paths.go, hostdevices.go: what of the host a job may use; gpunodes.go: what of a GPU
//	network.go  netfiles.go           a group's network and its hosts and resolv.conf files; resolvconf.go: what the latter says
//	handle.go  store.go               tasks that run, and what Nomad keeps of them
//	recover.go  watch.go              taking up tasks of an earlier process; how a task's end is known
//	takeover.go                       taking up tasks of Nomad's own driver, under whose name this one can serve
//	stop.go  destroy.go  inspect.go   WaitTask, StopTask, SignalTask; DestroyTask; InspectTask
//	release.go  journal.go            the end of an attempt: container gone, claim released, over restarts
//	custody.go  tenancy.go            who looks after an attempt: in this process, and on this node
//	orphans.go  sweep.go  sandboxes.go   what nobody looks after; stuck.go: what cannot be ended
//	reconcile.go  home.go  remarks.go   what the table says of this node's GPUs, against what runs
//	logs.go                           output into Nomad's pipes, which package logpipe writes and keeps open
//	cpuset.go                         the CPUs that tasks share with each other
//	images.go  imagenotes.go          images: brought for a task, removed when nobody uses them
//	exec.go  stats.go  events.go  fingerprint.go  enginepid.go   one family of calls each
//
// # What holds
//
// No container runs without a claim, and no claim ends before its container is
// proven gone. Between the two stands the journal: an attempt is written down before
// anything is taken for it and struck off when all is given back, so that the plugin,
// the agent or the machine may die at any moment.
//
// The pin is the last thing to go into a container's environment. Neither the job,
// nor its templates, nor the image can change it, and every other way to ask the
// NVIDIA runtime for a GPU is refused with the start.
//
// A daemon or table that is away is not an end and not a proof of anything, nor is
// what another daemon than the one that has the container says of it.
//
// A task can change what is in its allocation's directory. Whatever of it the driver
// opens, it opens by package taskfile; its own state is in state_dir.
//
// The package depends on package docker for plain types and errors only; the engine
// and the table come in through New.
package driver
