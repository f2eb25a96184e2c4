// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"maps"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/client/allocdir"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/ryanuber/go-glob"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// Labels of the containers that this driver makes. They are its own on purpose:
// Nomad's Docker driver removes containers that carry its label, or that are named
// like its own, and does not know.
const (
	labelPrefix  = "nomad-gpu-mem."
	labelAlloc   = labelPrefix + "alloc_id"
	labelAttempt = labelPrefix + "task_id" // Nomad's task config ID: one start of a task
	labelGPUs    = labelPrefix + "gpus"    // that the container sees, by UUID, separated by spaces
	labelNode    = labelPrefix + "node_id" // Nomad's ID of the node
	labelSandbox = labelPrefix + "sandbox" // allocation whose network a pause container holds
)

// Labels of Nomad's Docker driver, which log shippers read; see compat_labels.
const (
	builtinPrefix = "com.hashicorp.nomad."
	builtinAlloc  = builtinPrefix + "alloc_id"
)

// containerName cannot be taken for a container of Nomad's Docker driver, which
// joins task and allocation by a dash and removes strangers that look alike.
func containerName(task *drivers.TaskConfig) string {
	return strings.ReplaceAll(task.Name, "/", "_") + "_" + task.AllocID
}

// labels are the job's own, and over them those that the operator asked for and those
// by which the driver finds its containers again.
func (b *blueprint) labels() error {
	all := map[string]string{}
	maps.Copy(all, b.job.Labels)
	if value, ok := all[builtinAlloc]; ok && !b.settings.CompatLabels {
		delete(all, builtinAlloc)
		b.remark("config.labels: %s = %q was removed, since Nomad's own Docker driver ends every container that carries this "+
			"label and is not its own; the client's compat_labels sets it where that driver is off", builtinAlloc, value)
	}
	extra := extraLabels(b.task, b.settings.ExtraLabels)
	for name, value := range extra {
		all[labelPrefix+name] = value
	}
	if b.settings.CompatLabels {
		for name, value := range extra {
			all[builtinPrefix+name] = value
		}
		all[builtinAlloc] = b.task.AllocID
	}
	maps.Copy(all, map[string]string{
		labelAlloc:   b.task.AllocID,
		labelAttempt: b.task.ID,
		labelNode:    b.task.NodeID,
		labelGPUs:    joinGPUs(b.bookings), // also if there are none: the image may have a label of this name
	})
	b.config.Labels = all
	return nil
}

// extraLabels are what the operator wants to read off a container, by globs of names. A
// job without a parent has no label of one.
func extraLabels(task *drivers.TaskConfig, globs []string) map[string]string {
	chosen := map[string]string{
		"job_name":        task.JobName,
		"job_id":          task.JobID,
		"parent_job_id":   task.ParentJobID,
		"task_group_name": task.TaskGroupName,
		"task_name":       task.Name,
		"namespace":       task.Namespace,
		"node_name":       task.NodeName,
		"node_id":         task.NodeID,
	}
	maps.DeleteFunc(chosen, func(name, value string) bool {
		return !matchesAny(globs, name) || name == "parent_job_id" && value == ""
	})
	return chosen
}

// startOf returns the allocation and the task that a container is a start of, by the
// directory that every task has mounted from where Nomad made it. Both are empty for a
// container without one.
func startOf(c docker.Container) (alloc, task string) {
	local := c.Mounts[allocdir.TaskLocalContainerPath]
	if local == "" {
		return "", ""
	}
	dir := filepath.Dir(local)
	return filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
}

// ours reports whether this driver made a container that carries its labels. An image
// that was committed from a task hands the labels on to whatever is run of it, but not
// the task's directory.
func ours(c docker.Container) bool {
	alloc, _ := startOf(c)
	return alloc != "" && alloc == c.Labels[labelAlloc]
}

func matchesAny(globs []string, text string) bool {
	for _, pattern := range globs {
		if glob.Glob(pattern, text) {
			return true
		}
	}
	return false
}

func joinGPUs(bookings []allocator.Booking) string {
	var gpus []string
	for _, b := range bookings {
		gpus = append(gpus, string(b.GPU))
	}
	return strings.Join(gpus, " ")
}
