// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/containerspec"
)

// InspectTask tells what is known of a task, without asking the daemon.
func (p *Plugin) InspectTask(id string) (*drivers.TaskStatus, error) {
	h, ok := p.task(id)
	if !ok {
		return nil, drivers.ErrTaskNotFound
	}
	status := &drivers.TaskStatus{
		ID:               h.task.ID,
		Name:             h.task.Name,
		State:            drivers.TaskStateRunning,
		StartedAt:        h.startedAt,
		NetworkOverride:  h.network,
		DriverAttributes: map[string]string{"container_id": h.container},
	}
	if len(h.bookings) > 0 {
		status.DriverAttributes["gpus"] = containerspec.Listed(h.bookings, func(b allocator.Booking) string { return string(b.GPU) })
	}
	if !h.running() {
		status.State = drivers.TaskStateExited
		status.CompletedAt = h.exit.finishedAt
		status.ExitResult = h.exit.result.Copy()
	}
	return status, nil
}
