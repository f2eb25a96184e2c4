// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// The table learns of starts that fail for the node's fault, and of no others.
func TestFaultOfTheNodeIsNoted(t *testing.T) {
	t.Parallel()
	uvm := fmt.Errorf("%w: error gathering device information while adding custom device \"/dev/nvidia-uvm\": no such file", docker.ErrStart)
	for name, c := range map[string]struct {
		fail  error
		gpus  []allocator.GPUID // at fault
		wants string
	}{
		"nvidia-uvm is missing": {fail: uvm, gpus: []allocator.GPUID{gpuA, gpuB}, wants: "nvidia-modprobe"},
		"one GPU has no CDI device": {
			fail: fmt.Errorf("%w: unresolvable CDI devices nvidia.com/gpu=%s", docker.ErrDeviceMissing, gpuB),
			gpus: []allocator.GPUID{gpuB}, wants: "nvidia-ctk cdi list",
		},
		"the job's command":  {fail: fmt.Errorf("%w: exec: \"/dev/nvidia-uvm\": executable file not found", docker.ErrStart)},
		"the port is in use": {fail: fmt.Errorf("%w: port is already allocated", docker.ErrStart)},
		"the job's fault":    {fail: errors.New("no such command")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			w.engine.fail("Start", c.fail)
			_, _, err := d.StartTask(w.task(``, slice(gpuA, 1), slice(gpuB, 2)))
			must.Error(t, err)
			var noted []allocator.GPUID
			for _, gpu := range []allocator.GPUID{gpuA, gpuB} {
				found, err := w.table.Inspect(t.Context(), gpu)
				must.NoError(t, err)
				if faults := found.Ledger.StartFaults; faults != nil {
					noted = append(noted, gpu)
					must.Eq(t, 1, faults.Count)
					must.StrContains(t, faults.Reason, c.wants)
				}
			}
			must.Eq(t, c.gpus, noted)
			w.nothingLeft()
		})
	}
}

// A start before which no CDI specification has the GPU counts as well, and so does what
// ends the count: a container that runs.
func TestFaultOfTheNodeEndsWithAStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `gpu_injection = "cdi"`
	w.engine.cdi = docker.CDI{Enabled: true, Lists: true}
	d := w.boot()
	faults := func() *allocator.StartFaults {
		found, err := w.table.Inspect(t.Context(), gpuA)
		must.NoError(t, err)
		return found.Ledger.StartFaults
	}
	for count := 1; count <= 3; count++ {
		_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
		must.ErrorContains(t, err, "GPU-aaaa")
		must.Eq(t, count, faults().Count)
	}
	w.engine.change(func() { w.engine.cdi.Devices = []string{"nvidia.com/gpu=GPU-aaaa"} })
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	must.Nil(t, faults())
}
