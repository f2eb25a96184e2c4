// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
)

// A group that fitted nowhere waits for a whole GPU of one size. When one of
// another size becomes free Nomad cannot use it, until the job is planned again.
// The other group keeps its container.
func testReplanBlocked(t *testing.T, c *cluster) {
	gpus := c.snapshot(t).GPUs
	must.Len(t, 2*plannerNodes, gpus)
	for i, gpu := range gpus {
		c.start(t, gpuJob(fmt.Sprintf("filler-%d", i), 2, onGPU(string(gpu.ID))))
	}
	job := gpuJob("runs", 1)
	waiting := gpuJob("waits", 1).TaskGroups[0]
	waiting.Tasks[0].SetMeta(planner.MetaAmount, "whole")
	job.AddTaskGroup(waiting)
	body, err := json.Marshal(job)
	must.NoError(t, err)
	path := filepath.Join(c.run, "blocked.json")
	must.NoError(t, os.WriteFile(path, body, 0o600))
	t.Cleanup(func() { c.remove(t, "runs") })
	code, out := c.exit(t, "run", path)
	must.Eq(t, 6, code, must.Sprint(out))
	must.StrContains(t, out, "1 instance fits nowhere")
	before := containersOf(c.waitHeld(t, "runs", 1))

	registered, _, err := c.nomad.Jobs().Info("runs", nil)
	must.NoError(t, err)
	bound := int(*registered.TaskGroups[1].Tasks[0].Resources.Devices[0].Count)
	freed := c.freeOther(t, gpus, bound, c.waitHeld(t, "runs", 1)[0].gpu)
	eventually(t, startTime, "Nomad has heard of the room", func() error {
		if code, out := c.exit(t, "replan", "--dry-run", "runs"); code != 0 {
			return fmt.Errorf("replan ends with %d: %s", code, out)
		}
		return nil
	})
	var all []live.Replanned
	must.NoError(t, json.Unmarshal([]byte(c.cli(t, "replan", "--json", "runs")), &all))
	must.True(t, all[0].Changed)
	must.True(t, all[0].Report.AsPlanned())

	now := c.waitHeld(t, "runs", 2)
	must.SliceContains(t, containersOf(now), before[0])
	for _, held := range now {
		if held.Group == "waits" {
			must.Eq(t, freed, held.gpu)
		}
	}
}

// freeOther frees a GPU that has another number of units and is not the GPU to
// keep.
func (c *cluster) freeOther(t *testing.T, gpus []allocator.GPU, units int, alone allocator.GPUID) allocator.GPUID {
	t.Helper()
	for i, gpu := range gpus {
		if gpu.State.Units != units && gpu.ID != alone {
			c.remove(t, fmt.Sprintf("filler-%d", i))
			return gpu.ID
		}
	}
	t.Fatalf("all GPUs have %d units", units)
	return ""
}
