// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	cstructs "github.com/hashicorp/nomad/client/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/docker"
)

func TestNodeTicks(t *testing.T) {
	t.Parallel()
	task := func(shares int64, fraction float64) *drivers.TaskConfig {
		return &drivers.TaskConfig{Resources: &drivers.Resources{LinuxResources: &drivers.LinuxResources{CPUShares: shares, PercentTicks: fraction}}}
	}
	must.Eq(t, 8000, nodeTicks(task(2000, 0.25)))
	must.Eq(t, 0, nodeTicks(task(2000, 0)))
	must.Eq(t, 0, nodeTicks(&drivers.TaskConfig{}))
}

// Every value is in its place, and what the kernel does not tell is not said to be measured.
func TestUsage(t *testing.T) {
	t.Parallel()
	sample := docker.Sample{
		Time: time.Unix(7, 0), CPUPercent: 150, CPUUserPercent: 100, CPUSystemPercent: 50, ThrottledPeriods: 3, ThrottledTime: 4,
		MemoryUsage: 10, MemoryMaxUsage: 20, MemoryRSS: 30, MemoryCache: 40, MemorySwap: 50, MemoryMapped: 60,
	}
	got := usage(sample, 0)
	must.Eq(t, 7_000_000_000, got.Timestamp)
	must.Eq(t, &cstructs.MemoryStats{
		RSS: 30, Cache: 40, Swap: 50, MappedFile: 60, Usage: 10, MaxUsage: 20,
		Measured: []string{"RSS", "Cache", "Swap", "Mapped File", "Usage", "Max Usage"},
	}, got.ResourceUsage.MemoryStats)
	cpu := got.ResourceUsage.CpuStats
	must.Eq(t, 150, cpu.Percent)
	must.Eq(t, 100, cpu.UserMode)
	must.Eq(t, 50, cpu.SystemMode)
	must.Eq(t, 3, cpu.ThrottledPeriods)
	must.Eq(t, 4, cpu.ThrottledTime)

	sample.CgroupV2 = true
	must.SliceNotContains(t, usage(sample, 0).ResourceUsage.MemoryStats.Measured, "Max Usage")
}
