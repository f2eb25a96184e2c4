// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"runtime"
	"time"

	cstructs "github.com/hashicorp/nomad/client/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/docker"
)

// TaskStats sends the task's use of CPU and memory, at once and then at each
// interval, until ctx ends or the task is destroyed. A measurement that fails is
// left out: Nomad would open a closed stream again at once.
func (p *Plugin) TaskStats(ctx context.Context, id string, interval time.Duration) (<-chan *cstructs.TaskResourceUsage, error) {
	h, ok := p.task(id)
	if !ok {
		return nil, drivers.ErrTaskNotFound
	}
	s, err := p.serving()
	if err != nil {
		return nil, err
	}
	if interval <= 0 {
		interval = time.Second
	}
	ch := make(chan *cstructs.TaskResourceUsage)
	p.spawn(func() {
		defer close(ch)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.ctx, cancel)()
		every(ctx, interval, func() {
			sample, err := s.engine.Stats(ctx, h.container)
			if err != nil {
				p.logger.Debug("no statistics of a task", "task_id", id, "error", err)
				return
			}
			select {
			case ch <- usage(sample, nodeTicks(h.task)):
			case <-ctx.Done():
			}
		})
	})
	return ch, nil
}

// nodeTicks is the MHz of all the node's cores. Nomad tells a plugin only the task's
// share of them and what it is as a fraction.
func nodeTicks(task *drivers.TaskConfig) float64 {
	if task.Resources == nil || task.Resources.LinuxResources == nil || task.Resources.LinuxResources.PercentTicks == 0 {
		return 0
	}
	return float64(task.Resources.LinuxResources.CPUShares) / task.Resources.LinuxResources.PercentTicks
}

// usage puts a sample into Nomad's terms and says which of its fields were measured.
func usage(s docker.Sample, nodeTicks float64) *cstructs.TaskResourceUsage {
	memory := &cstructs.MemoryStats{
		RSS:        s.MemoryRSS,
		Cache:      s.MemoryCache,
		Swap:       s.MemorySwap,
		MappedFile: s.MemoryMapped,
		Usage:      s.MemoryUsage,
		MaxUsage:   s.MemoryMaxUsage,
		Measured:   []string{"RSS", "Cache", "Swap", "Mapped File", "Usage"},
	}
	if !s.CgroupV2 {
		memory.Measured = append(memory.Measured, "Max Usage")
	}
	cpu := &cstructs.CpuStats{
		Percent:          s.CPUPercent,
		UserMode:         s.CPUUserPercent,
		SystemMode:       s.CPUSystemPercent,
		TotalTicks:       s.CPUPercent / 100 * nodeTicks / float64(runtime.NumCPU()),
		ThrottledPeriods: s.ThrottledPeriods,
		ThrottledTime:    s.ThrottledTime,
		Measured:         []string{"Throttled Periods", "Throttled Time", "Percent", "User Mode", "System Mode", "Total Ticks"},
	}
	return &cstructs.TaskResourceUsage{
		ResourceUsage: &cstructs.ResourceUsage{MemoryStats: memory, CpuStats: cpu},
		Timestamp:     s.Time.UnixNano(),
	}
}
