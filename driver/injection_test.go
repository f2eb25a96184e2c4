// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/docker"
)

// The fingerprint says how GPUs reach containers, and a demand that cannot be met makes the driver unhealthy.
func TestFingerprintOfTheInjection(t *testing.T) {
	t.Parallel()
	const attribute = "driver.gpu-docker.gpu_injection"
	gpu := docker.CDI{Enabled: true, Lists: true, Devices: []string{"nvidia.com/gpu=GPU-aaaa"}}
	for setting, impossible := range map[string]struct {
		change func(e *fakeEngine)
		reason string
	}{
		"auto":    {nil, ""},
		"cdi":     {func(e *fakeEngine) { e.cdi = docker.CDI{} }, "has no CDI"},
		"runtime": {func(e *fakeEngine) { e.runtimes = []string{"runc"} }, `no runtime "nvidia"`},
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config = `gpu_injection = "` + setting + `"`
			w.engine.cdi = gpu
			prints, err := w.boot().Fingerprint(t.Context())
			must.NoError(t, err)
			first := <-prints
			must.Eq(t, drivers.HealthStateHealthy, first.Health)
			must.Eq(t, drivers.DriverHealthy, first.HealthDescription)
			want := map[string]string{"auto": "cdi"}[setting]
			if want == "" {
				want = setting
			}
			must.Eq(t, want, first.Attributes[attribute].GoString())
			if impossible.change == nil {
				w.engine.change(func() { w.engine.cdi = docker.CDI{Enabled: true, Lists: true} })
				must.Eq(t, "runtime", (<-prints).Attributes[attribute].GoString())
				w.engine.change(func() { w.engine.runtimes = []string{"runc"} })
				neither := <-prints
				must.Eq(t, drivers.HealthStateHealthy, neither.Health, must.Sprint("for tasks without a GPU"))
				must.StrContains(t, neither.HealthDescription, "no CDI specification names a GPU")
				must.Eq(t, "none", neither.Attributes[attribute].GoString())
				return
			}
			w.engine.change(func() { impossible.change(w.engine) })
			second := <-prints
			must.Eq(t, drivers.HealthStateUnhealthy, second.Health)
			must.StrContains(t, second.HealthDescription, `gpu_injection = "`+setting+`" is not possible`)
			must.StrContains(t, second.HealthDescription, impossible.reason)
			must.Eq(t, "none", second.Attributes[attribute].GoString())
		})
	}
}

// A start whose GPU no specification names fails before anything is claimed, and may succeed later: after a boot the
// specification can come late.
func TestStartWithoutACDIDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `gpu_injection = "cdi"`
	w.engine.cdi = docker.CDI{Enabled: true, Lists: true, Devices: []string{"nvidia.com/gpu=GPU-bbbb"}}
	d := w.boot()
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, "nvidia.com/gpu=GPU-aaaa")
	must.True(t, structs.IsRecoverable(err))
	w.nothingLeft()
	task := w.task(``, slice(gpuB, 1))
	_, _, err = d.StartTask(task)
	must.NoError(t, err)
	must.NoError(t, d.DestroyTask(task.ID, true))

	w.engine.change(func() { w.engine.cdi = docker.CDI{} })
	_, _, err = d.StartTask(w.task(``, slice(gpuB, 1)))
	must.ErrorContains(t, err, "has no CDI")
	must.False(t, structs.IsRecoverable(err))
}
