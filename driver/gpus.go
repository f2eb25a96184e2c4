// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/injection"
)

// bookingsOf returns what Nomad booked for a task, in the order of the GPUs' UUIDs.
// Only DeviceEnv is believed: device plugins alone write it, while a job, its
// templates and its image can put anything into the rest of the environment.
func bookingsOf(task *drivers.TaskConfig) ([]allocator.Booking, error) {
	bookings, err := allocator.ParseBookings(task.DeviceEnv)
	if err != nil {
		return nil, fmt.Errorf("the GPU memory booked for task %q cannot be read: %w; "+
			"device plugin and task driver must be of one version", task.Name, err)
	}
	if err := refuseForeignGPU(task.DeviceEnv[containerspec.VisibleDevices], bookings); err != nil {
		return nil, err
	}
	return bookings, nil
}

// refuseForeignGPU fails a task that holds a GPU from another device plugin. That
// plugin hands out whole GPUs, which the allocation table may have sold in part.
func refuseForeignGPU(visible string, bookings []allocator.Booking) error {
	if visible == "" || slices.Contains(allocator.GPUsOf(bookings), allocator.GPUID(visible)) {
		return nil
	}
	return fmt.Errorf("the task was given GPU %q by another device plugin than gpu-mem, whose claims this driver cannot check: "+
		`ask for device "`+allocator.Device+`", or run the task with Nomad's own driver`, visible)
}

// chooseInjection decides how the task's GPUs reach its container, and fails a start that Docker would fail, in words that
// say what to do.
func (s *start) chooseInjection() error {
	runtime, refused := s.input.RuntimeName()
	if !s.input.HasGPU() && (refused != nil || !s.input.Observes()) {
		return refused
	}
	info, err := whenBack(s, s.services.engine.Info)
	if err != nil {
		return fmt.Errorf("cannot query how Docker gives GPUs to containers: %w", err)
	}
	s.engine = info.ID
	settings := s.services.settings
	if s.input.Observes() {
		if !slices.Contains(info.Runtimes, runtime) {
			return injection.NoRuntime(settings, info)
		}
		return nil
	}
	way, reasons := injection.Choose(settings, info, allocator.GPUsOf(s.input.Bookings))
	s.input.Injection, s.input.PlainRuntime = way, injection.PlainRuntime(settings, info)
	if config.Injection(settings.GPUInjection) != config.ByCDI || way == config.ByCDI {
		if _, err := s.input.RuntimeName(); err != nil {
			return err // the job's fault, or that of allow_runtimes
		}
	}
	if way != config.ByNone {
		return nil
	}
	return injection.Impossible(settings, info, reasons)
}
