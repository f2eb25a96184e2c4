// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"maps"
	"strings"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/ryanuber/go-glob"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/label"
)

// labels are the job's own, and over them those that the operator asked for and those
// by which the driver finds its containers again.
func (b *builder) labels() error {
	all := map[string]string{}
	maps.Copy(all, b.Job.Labels)
	if value, ok := all[label.BuiltinAlloc]; ok && !b.Settings.CompatLabels {
		delete(all, label.BuiltinAlloc)
		b.remark("config.labels: %s = %q was removed, since Nomad's own Docker driver ends every container that carries this "+
			"label and is not its own; the client's compat_labels sets it where that driver is off", label.BuiltinAlloc, value)
	}
	extra := extraLabels(b.Task, b.Settings.ExtraLabels)
	for name, value := range extra {
		all[label.Prefix+name] = value
	}
	if b.Settings.CompatLabels {
		for name, value := range extra {
			all[label.BuiltinPrefix+name] = value
		}
		all[label.BuiltinAlloc] = b.Task.AllocID
	}
	maps.Copy(all, map[string]string{
		label.Alloc:   b.Task.AllocID,
		label.Attempt: b.Task.ID,
		label.Node:    b.Task.NodeID,
		label.GPUs:    joinGPUs(b.Bookings), // also if there are none: the image may have a label of this name
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
