// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package containerspec decides what a task's container is like: from the job's block, the operator's settings and what Nomad
// booked to the container that Docker is asked to create. Input.Build does it all, and creates nothing: it reads the host's devices,
// and a seccomp profile in the allocation's directory.
//
// A job author is not trusted. Each of these files refuses what would leave the container or reach another task's GPU, and says
// which setting of the operator allows it, if any does:
//
//	input.go          Input, and Build: the subjects in their order
//	process.go        command, user, output        resources.go  memory, CPU, limits
//	security.go       privileges, runtime, modes   securityopt.go  seccomp and the other security options
//	network.go        mode, DNS, ports             labels.go     labels
//	storage.go        volumes and mounts           access.go     what of the allocation is read-only
//	paths.go          which paths of the host a job may name; archive.go: an image in the task's directory
//	devices.go        device nodes; hostdevices.go, devicerules.go: which a job may name; gpunodes.go: those of GPUs
//	pin.go            which variables are reserved, and the pin: the GPUs that the container sees
//	env.go            the environment: the pin over all that job, template and image say, and what was overruled
//	observer.go       jobs of the operator that see all GPUs
package containerspec
