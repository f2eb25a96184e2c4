// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
)

// Sample is one measurement of a container's use. Memory is in bytes.
type Sample struct {
	Time             time.Time
	CPUPercent       float64 // 100 is one core
	CPUUserPercent   float64
	CPUSystemPercent float64
	ThrottledPeriods uint64
	ThrottledTime    uint64 // ns
	MemoryUsage      uint64
	MemoryMaxUsage   uint64 // cgroup v1 only
	MemoryRSS        uint64
	MemoryCache      uint64
	MemorySwap       uint64
	MemoryMapped     uint64
	CgroupV2         bool
}

// Stats measures a running container. It takes about a second: the daemon looks twice, for without a look before there is no
// CPU share.
//
// Errors: ErrNotFound, ErrNotRunning, ErrUnavailable.
func (c *Client) Stats(ctx context.Context, id string) (Sample, error) {
	resp, err := ask(c, func(api *client.Client) (container.StatsResponseReader, error) {
		return api.ContainerStats(ctx, id, false)
	})
	if err != nil {
		return Sample{}, wrap(err, "measuring container %s", short(id))
	}
	defer resp.Body.Close()
	var got container.StatsResponse
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return Sample{}, wrap(err, "measuring container %s", short(id))
	}
	if got.Read.IsZero() {
		return Sample{}, fmt.Errorf("measuring container %s: %w", id, ErrNotRunning)
	}
	return sampleOf(got), nil
}

func sampleOf(got container.StatsResponse) Sample {
	now, before := got.CPUStats, got.PreCPUStats
	share := func(now, before uint64) float64 {
		return percent(now, before, got.CPUStats.SystemUsage, got.PreCPUStats.SystemUsage, cores(got.CPUStats))
	}
	s := Sample{
		Time:             got.Read,
		CPUPercent:       share(now.CPUUsage.TotalUsage, before.CPUUsage.TotalUsage),
		CPUUserPercent:   share(now.CPUUsage.UsageInUsermode, before.CPUUsage.UsageInUsermode),
		CPUSystemPercent: share(now.CPUUsage.UsageInKernelmode, before.CPUUsage.UsageInKernelmode),
		ThrottledPeriods: now.ThrottlingData.ThrottledPeriods,
		ThrottledTime:    now.ThrottlingData.ThrottledTime,
		MemoryUsage:      got.MemoryStats.Usage,
		MemoryMaxUsage:   got.MemoryStats.MaxUsage,
	}
	stat := got.MemoryStats.Stats
	if anon, v2 := stat["anon"]; v2 {
		s.CgroupV2 = true
		s.MemoryRSS, s.MemoryCache, s.MemoryMapped = anon, stat["file"], stat["file_mapped"]
		s.MemorySwap = stat["swap"]
		return s
	}
	s.MemoryRSS, s.MemoryCache, s.MemoryMapped = stat["rss"], stat["cache"], stat["mapped_file"]
	s.MemorySwap = stat["swap"]
	return s
}

// percent is the share of one core, in percent, that usage grew by while the whole system grew from systemBefore to systemNow.
// Counters restart at 0 when a container stops; that counts as 0 percent, not as a huge use.
func percent(now, before, systemNow, systemBefore uint64, cores float64) float64 {
	if now <= before || systemNow <= systemBefore {
		return 0
	}
	return float64(now-before) / float64(systemNow-systemBefore) * cores * 100
}

func cores(cpu container.CPUStats) float64 {
	if cpu.OnlineCPUs > 0 {
		return float64(cpu.OnlineCPUs)
	}
	return float64(len(cpu.CPUUsage.PercpuUsage))
}
