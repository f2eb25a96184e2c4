// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// A task that starts again does not start on a GPU that was lost meanwhile: the start
// waits a little, and then fails for good, so that Nomad places the task elsewhere.
func TestNoStartOnAnUnhealthyGPU(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must.NoError(t, err)
	all := allocator.UnitSet{0, 1, 2, 3, 4, 5, 6, 7}
	const lost = "GPU has fallen off the bus"
	for _, c := range []struct {
		name    string
		change  func(*allocator.GPUState, *allocator.NodeState)
		silent  time.Duration // since the device plugin reported
		cordon  bool
		refused string
	}{
		{"healthy", func(*allocator.GPUState, *allocator.NodeState) {}, 0, false, ""},
		{"lost", func(g *allocator.GPUState, _ *allocator.NodeState) { g.Health, g.Unhealthy = lost, all }, 0, false, lost},
		{"not offered", func(g *allocator.GPUState, _ *allocator.NodeState) { g.Health, g.Units = lost, 0 }, 0, false, lost},
		{"gone", func(_ *allocator.GPUState, n *allocator.NodeState) { n.GPUs = []allocator.GPUID{gpuB} }, 0, false, "NVML does not find it"},
		{"some units withheld", func(g *allocator.GPUState, _ *allocator.NodeState) { g.Health, g.Unhealthy = "in use", all[4:] }, 0, false, ""},
		{"cordoned", func(g *allocator.GPUState, _ *allocator.NodeState) { g.Health, g.Unhealthy = "cordoned", all }, 0, true, ""},
		{"lost, as an hour ago", func(g *allocator.GPUState, _ *allocator.NodeState) { g.Health, g.Unhealthy = lost, all }, time.Hour, false, ""},
		{"another node's", func(g *allocator.GPUState, _ *allocator.NodeState) {
			g.Node, g.Health, g.Unhealthy = "other", lost, all
		}, 0, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config = `claim_timeout = "0s"`
			d := w.boot()
			gpu := allocator.GPUState{Node: allocator.NodeName(host), Units: len(all), UnitMiB: 1024, MemoryMiB: 8192}
			node := allocator.NodeState{Name: allocator.NodeName(host), GPUs: []allocator.GPUID{gpuA, gpuB}}
			c.change(&gpu, &node)
			table := allocator.NewTable(w.store, allocator.WithClock(func() time.Time { return time.Now().Add(-c.silent) }))
			must.NoError(t, table.PutGPU(t.Context(), gpuA, gpu))
			must.NoError(t, table.PutNode(t.Context(), node))
			if c.cordon {
				must.NoError(t, w.table.Cordon(t.Context(), gpuA, "service"))
			}
			_, _, err := d.StartTask(w.task(``, slice(gpuB, 1), slice(gpuA, 2)))
			if c.refused == "" {
				must.NoError(t, err)
				return
			}
			must.ErrorContains(t, err, c.refused)
			must.False(t, structs.IsRecoverable(err))
			must.SliceEmpty(t, w.claims())
			w.nothingLeft()
		})
	}
}

// A start waits for a GPU that is on probation.
func TestStartWaitsForTheGPU(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	must.NoError(t, err)
	w := newWorld(t)
	w.config = `claim_timeout = "1m"`
	d := w.boot()
	state := allocator.GPUState{Node: allocator.NodeName(host), Units: 1, UnitMiB: 1024, Unhealthy: allocator.UnitSet{0}, Health: "on probation"}
	must.NoError(t, w.table.PutGPU(t.Context(), gpuA, state))
	must.NoError(t, w.table.PutNode(t.Context(), allocator.NodeState{Name: allocator.NodeName(host), GPUs: []allocator.GPUID{gpuA}}))
	started := make(chan error, 1)
	go func() { // ends with the start
		_, _, err := d.StartTask(w.task(``, slice(gpuA, 0)))
		started <- err
	}()
	eventually(t, func() bool { return d.reported("Waiting for the GPU to recover") })
	state.Unhealthy, state.Health = nil, ""
	must.NoError(t, w.table.PutGPU(t.Context(), gpuA, state))
	must.NoError(t, <-started)
}
