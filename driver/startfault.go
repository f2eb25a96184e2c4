// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// faultTime bounds the record of a failed start, for which Nomad waits.
const faultTime = 5 * time.Second

// noteFault tells the table of a start that failed because the node was not ready to give
// its GPUs to a container. After several in a row the device plugin does not offer these
// GPUs for a while: NVML reads them well, and each task that Nomad places here would fail.
func (s *start) noteFault(err error) {
	reason := docker.NotReady(err)
	if errors.Is(err, errNoCDIDevice) {
		reason = "no CDI specification has the GPU: see `nvidia-ctk cdi list`"
	}
	if reason == "" || !s.input.HasGPU() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), faultTime)
	defer cancel()
	if failed := s.services.table.StartFailed(ctx, blamed(allocator.GPUsOf(s.input.Bookings), err), reason); failed != nil {
		s.plugin.logger.Warn("the table does not know of a start that failed for the node's fault", "task_id", s.task.ID, "error", failed)
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
