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
	labelSandbox = labelPrefix + "sandbox" // allocation whose network a pause container holds
)

// containerName cannot be taken for a container of Nomad's Docker driver, which
// joins task and allocation by a dash and removes strangers that look alike.
func containerName(task *drivers.TaskConfig) string {
	return strings.ReplaceAll(task.Name, "/", "_") + "_" + task.AllocID
}

// labels are the job's own, then those that the operator asked for, then the ones
// by which the driver finds its containers again.
func labels(task *drivers.TaskConfig, own map[string]string, extra []string) map[string]string {
	all := maps.Clone(own)
	if all == nil {
		all = map[string]string{}
	}
	for name, value := range map[string]string{
		"job_name":        task.JobName,
		"job_id":          task.JobID,
		"parent_job_id":   task.ParentJobID,
		"task_group_name": task.TaskGroupName,
		"task_name":       task.Name,
		"namespace":       task.Namespace,
		"node_name":       task.NodeName,
		"node_id":         task.NodeID,
	} {
		if matchesAny(extra, name) {
			all[labelPrefix+name] = value
		}
	}
	maps.Copy(all, map[string]string{labelAlloc: task.AllocID, labelAttempt: task.ID})
	return all
}

// ours reports whether this driver made a container that carries its labels. An image
// that was committed from a task hands the labels on to whatever is run of it, but not
// the allocation's directory, which every task has mounted.
func ours(c docker.Container) bool {
	shared := c.Mounts[allocdir.SharedAllocContainerPath]
	alloc := c.Labels[labelAlloc]
	return alloc != "" && filepath.Base(filepath.Dir(shared)) == alloc
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
