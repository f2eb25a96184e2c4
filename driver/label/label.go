// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package label names the labels by which the task driver recognizes its containers, and reads them.
package label

import (
	"path/filepath"

	"github.com/hashicorp/nomad/client/allocdir"

	"nomad-gpu-mem/driver/docker"
)

// Labels of the containers that this driver makes. They are its own on purpose:
// Nomad's Docker driver removes containers that carry its label, or that are named
// like its own, and does not know.
const (
	Prefix  = "nomad-gpu-mem."
	Alloc   = Prefix + "alloc_id"
	Attempt = Prefix + "task_id" // Nomad's task config ID: one start of a task
	GPUs    = Prefix + "gpus"    // that the container sees, by UUID, separated by spaces
	Node    = Prefix + "node_id" // Nomad's ID of the node
	Sandbox = Prefix + "sandbox" // allocation whose network a pause container holds
)

// Labels of Nomad's Docker driver, which log shippers read; see compat_labels.
const (
	BuiltinPrefix = "com.hashicorp.nomad."
	BuiltinAlloc  = BuiltinPrefix + "alloc_id"
)

// StartOf returns the allocation and the task that a container is a start of, by the
// directory that every task has mounted from where Nomad made it. Both are empty for a
// container without one.
func StartOf(c docker.Container) (alloc, task string) {
	local := c.Mounts[allocdir.TaskLocalContainerPath]
	if local == "" {
		return "", ""
	}
	dir := filepath.Dir(local)
	return filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
}

// Ours reports whether this driver made a container that carries its labels. An image
// that was committed from a task hands the labels on to whatever is run of it, but not
// the task's directory.
func Ours(c docker.Container) bool {
	alloc, _ := StartOf(c)
	return alloc != "" && alloc == c.Labels[Alloc]
}
