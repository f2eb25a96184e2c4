// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"runtime"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// The first sample has a CPU share already, and comes soon.
func TestServiceStatsOfABusyTask(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script(`while true; do true; done`, ``)
	d.run(t, task)
	began := time.Now()
	stats, err := d.TaskStats(t.Context(), task.ID, time.Second)
	must.NoError(t, err)
	for range 2 {
		sample := (<-stats).ResourceUsage
		must.Positive(t, sample.CpuStats.Percent)
		must.LessEq(t, float64(100*runtime.NumCPU()+20), sample.CpuStats.Percent)
		must.Positive(t, sample.CpuStats.TotalTicks)
		must.Positive(t, sample.MemoryStats.RSS)
		must.Less(t, 10*time.Second, time.Since(began))
	}
}
