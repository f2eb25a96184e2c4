// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/injection"
)

// errUnhealthy is returned for a start on a GPU that no new task should use. It may pass,
// as after a reset; if not, Nomad has to place the task elsewhere.
var errUnhealthy = errors.New("GPU is unhealthy")

// checkHealth fails if the device plugin has withdrawn one of the GPUs. Nomad starts a
// task again on the GPU that it has, whatever became of it meanwhile. A cordon does
// not count: it keeps new tasks away, and not those that have their units.
func (s *services) checkHealth(ctx context.Context, gpus []allocator.GPUID, now time.Time) error {
	node, err := s.table.Node(ctx, s.reaper.Node.Host)
	if err != nil || now.Sub(node.LastSeen) >= attempt.DeviceSilence {
		return unlessUnreadable(err) // what a silent device plugin said last may have passed
	}
	for _, gpu := range gpus {
		state, err := s.table.State(ctx, gpu)
		if err != nil {
			return unlessUnreadable(err)
		}
		reason := allocator.GPU{ID: gpu, State: state}.Withdrawn(node)
		if reason == "" {
			continue
		}
		if found, err := s.table.Inspect(ctx, gpu); err == nil && found.Cordon != nil {
			continue
		}
		return fmt.Errorf("%w: GPU %s: %s", errUnhealthy, gpu, reason)
	}
	return nil
}

// unlessUnreadable ignores a state that cannot be read: it proves nothing of a GPU.
func unlessUnreadable(err error) error {
	if errors.Is(err, allocator.ErrUnreadable) {
		return nil
	}
	return err
}

// faultTime bounds the record of a failed start, for which Nomad waits.
const faultTime = 5 * time.Second

// noteFault tells the table of a start that failed because the node was not ready to give
// its GPUs to a container. After several in a row the device plugin does not offer these
// GPUs for a while: NVML reads them well, and each task that Nomad places here would fail.
func (s *start) noteFault(err error) {
	reason := docker.NotReady(err)
	if errors.Is(err, injection.ErrNoCDIDevice) {
		reason = "no CDI specification has the GPU: see `nvidia-ctk cdi list`"
	}
	if reason == "" || !s.input.HasGPU() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), faultTime)
	defer cancel()
	if failed := s.services.table.StartFailed(ctx, blamed(allocator.GPUsOf(s.input.Bookings), err), reason); failed != nil {
		s.services.logger.Warn("the table does not know of a start that failed for the node's fault", "task_id", s.task.ID, "error", failed)
	}
}

// blamed are the GPUs that an error names, all if it names none.
func blamed(gpus []allocator.GPUID, err error) []allocator.GPUID {
	named := slices.DeleteFunc(slices.Clone(gpus), func(gpu allocator.GPUID) bool { return !strings.Contains(err.Error(), string(gpu)) })
	if len(named) == 0 {
		return gpus
	}
	return named
}
