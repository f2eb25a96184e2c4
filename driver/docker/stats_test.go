// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                          string
		now, before, sysNow, sysBefor uint64
		cores, want                   float64
	}{
		{"half of two cores", 150, 100, 300, 100, 2, 50},
		{"one core of four", 350, 250, 800, 400, 4, 100},
		{"stopped: the counter is 0 again", 0, 100, 300, 100, 2, 0},
		{"no time has passed", 150, 100, 100, 100, 2, 0},
		{"the system's counter ran back", 150, 100, 50, 100, 2, 0},
		{"idle", 100, 100, 300, 100, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			must.Eq(t, tc.want, percent(tc.now, tc.before, tc.sysNow, tc.sysBefor, tc.cores))
		})
	}
}

func TestSampleMemory(t *testing.T) {
	t.Parallel()
	v1 := sampleOf(container.StatsResponse{MemoryStats: container.MemoryStats{Usage: 9, MaxUsage: 12,
		Stats: map[string]uint64{"rss": 1, "cache": 2, "swap": 3, "mapped_file": 4}}})
	must.Eq(t, Sample{MemoryUsage: 9, MemoryMaxUsage: 12, MemoryRSS: 1, MemoryCache: 2, MemorySwap: 3, MemoryMapped: 4}, v1)

	v2 := sampleOf(container.StatsResponse{MemoryStats: container.MemoryStats{Usage: 9,
		Stats: map[string]uint64{"anon": 1, "file": 2, "file_mapped": 4}}})
	must.Eq(t, Sample{CgroupV2: true, MemoryUsage: 9, MemoryRSS: 1, MemoryCache: 2, MemoryMapped: 4}, v2)
}
