// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// observing lets the job monitoring/gpu-exporter observe GPUs.
const observing = `gpu_observer { jobs = ["monitoring/gpu-exporter"] }`

// An observer claims nothing, also where the table is unavailable, and needs NVIDIA's runtime.
func TestObserverStartsWithoutAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config += "\n" + observing
	d := w.boot()
	w.store.Fail(allocator.ErrUnavailable)
	task := w.task(`runtime = "nvidia"`)
	task.Namespace, task.JobID = "monitoring", "gpu-exporter"
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	must.SliceContains(t, w.engine.running()[0].spec.Config.Env, "NVIDIA_VISIBLE_DEVICES=all")

	w.engine.change(func() { w.engine.runtimes = []string{"runc"} })
	second := w.task(`runtime = "nvidia"`)
	second.Namespace, second.JobID = "monitoring", "gpu-exporter"
	_, _, err = d.StartTask(second)
	must.ErrorContains(t, err, `requested docker runtime "nvidia" was not found`)
}
