// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// NVIDIA's runtime gives a listed job all GPUs, and the table has no claim of it. The same
// job in another namespace is refused.
func TestServiceObserverSeesAllGPUs(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\n" + observing
	d := w.boot()
	const list = `ls /dev | grep -c '^nvidia[0-9]'; echo $NVIDIA_DRIVER_CAPABILITIES; exit 0`
	task, out := w.script(list, `runtime = "nvidia"`)
	task.Namespace, task.JobID = "monitoring", "gpu-exporter"
	task.Env["NVIDIA_DRIVER_CAPABILITIES"] = "all"
	d.run(t, task)
	must.SliceEmpty(t, w.claims())
	must.True(t, d.ended(t, task).Successful())
	eventually(t, func() bool { return strings.TrimSpace(out.Got()) == "2\nutility" })

	other, _ := w.script(list, `runtime = "nvidia"`)
	other.Namespace, other.JobID = "default", "gpu-exporter"
	_, _, err := d.StartTask(other)
	must.ErrorContains(t, err, "gpu_observer.jobs")
	noContainer(t, other)
}
