// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/config"
)

// Tasks without cores of their own share those that no task has reserved. Nomad writes
// that pool into a control group, whose path it gives to each task. A container is in
// none of Nomad's groups, so the driver sets its CPUs by Docker's means: when the
// container is made, and when the pool has changed since.

// sharedCPUs returns the pool as it is now, in the kernel's list format. It is empty if
// the task has cores of its own, or if there is no such pool on this node.
func sharedCPUs(task *drivers.TaskConfig) string {
	if task.Resources == nil || task.Resources.LinuxResources == nil {
		return ""
	}
	linux := task.Resources.LinuxResources
	if linux.CpusetCpus != "" || linux.CpusetCgroupPath == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(linux.CpusetCgroupPath, "cpuset.cpus"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// poolLoop follows the pool for the tasks that share it.
func (s *services) poolLoop() {
	every(s.ctx, s.pace.pool, func() {
		for _, h := range s.tasks.all() {
			if h.running() && h.seen.Load() {
				s.followPool(h)
			}
		}
	})
}

// followPool is called by one goroutine only. A job that names CPUs itself has them.
func (s *services) followPool(h *handle) {
	pool := sharedCPUs(h.task)
	if pool == "" || pool == h.pool {
		return
	}
	if job, err := config.DecodeTask(h.task); err != nil || job.CpusetCpus != "" {
		h.pool = pool
		return
	}
	_, err := askFor(h.ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.engine.SetCPUs(ctx, h.container, pool)
	})
	if err != nil {
		s.logger.Debug("cannot update the CPUs of a container; trying again", "task_id", h.task.ID, "cpus", pool, "error", err)
		return
	}
	h.pool = pool
}
