// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"fmt"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// waysHere are the ways by which the engine can give GPUs to containers.
func waysHere(t *testing.T) []config.Injection {
	t.Helper()
	engine, err := docker.New(docker.Config{})
	must.NoError(t, err)
	defer engine.Close()
	info, err := engine.Info(t.Context())
	must.NoError(t, err)
	if info.CDI.Enabled {
		return []config.Injection{config.ByRuntime, config.ByCDI}
	}
	return []config.Injection{config.ByRuntime}
}

// What a container sees is what was booked, however it is given, and whatever the job and its image ask for.
func TestServiceContainerSeesItsGPUsOnly(t *testing.T) {
	t.Parallel()
	image := greedyImage(t)
	first, second := testGPUs(t)
	const list = `ls /dev | grep '^nvidia[0-9]' | tr '\n' ' '; env | grep NVIDIA_MIG; echo end`
	for _, way := range waysHere(t) {
		for _, c := range []struct {
			name     string
			bookings []allocator.Booking
			hcl      string
			nodes    string
		}{
			{"none", nil, ``, "end\n"},
			{"first", []allocator.Booking{slice(first, 1)}, ``, "nvidia0 end\n"},
			{"second", []allocator.Booking{slice(second, 1)}, ``, "nvidia1 end\n"},
			{"second, naming the runtime", []allocator.Booking{slice(second, 1)}, `runtime = "nvidia"`, "nvidia1 end\n"},
			{"both", []allocator.Booking{slice(first, 2), slice(second, 2)}, ``, "nvidia0 nvidia1 end\n"},
			{"label", []allocator.Booking{slice(first, 1)}, `labels { "cdi.k8s.io/x" = "nvidia.com/gpu=all" }`, "nvidia0 end\n"},
		} {
			t.Run(string(way)+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				w := realWorld(t)
				w.config += fmt.Sprintf("\ngpu_injection = %q", way)
				d := w.boot()
				task, out := w.script(list, c.hcl, c.bookings...)
				config, err := config.DecodeTask(task)
				must.NoError(t, err)
				config.Image = image
				must.NoError(t, task.EncodeConcreteDriverConfig(config))
				task.Env[containerspec.VisibleDevices] = "all" // as a template would set it
				d.run(t, task)
				d.ended(t, task)
				eventually(t, func() bool { return out.Got() == c.nodes })
			})
		}
	}
}

// By CDI no NVIDIA runtime is needed, and one that is there has no part in it.
func TestServiceCDINeedsNoRuntime(t *testing.T) {
	t.Parallel()
	if len(waysHere(t)) < 2 {
		t.Skip("this engine has no CDI")
	}
	w := realWorld(t)
	w.config += "\nnvidia_runtime = \"not-there\""
	d := w.boot()
	prints, err := d.Fingerprint(t.Context())
	must.NoError(t, err)
	must.Eq(t, "cdi", (<-prints).Attributes["driver.gpu-docker.gpu_injection"].GoString())
	first, _ := testGPUs(t)
	task, out := w.script(`ls /dev | grep '^nvidia[0-9]'; echo $NVIDIA_VISIBLE_DEVICES $GPU_MEM_UUIDS; sleep 300`, ``, slice(first, 1))
	d.run(t, task)
	want := fmt.Sprintf("nvidia0\nvoid %s\n", first)
	eventually(t, func() bool { return out.Got() == want })
	must.Eq(t, "runc", dockerCommand(t, "inspect", "--format", "{{.HostConfig.Runtime}}", label.ContainerName(task.Name, task.AllocID)))
}

// An engine without CDI, or a specification without the GPU, fails a start before anything is claimed.
func TestServiceCDIWithoutTheGPU(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\ngpu_injection = \"cdi\""
	task, _ := w.script(`true`, ``, slice("GPU-00000000-0000-0000-0000-000000000000", 1))
	_, _, err := w.boot().StartTask(task)
	must.ErrorContains(t, err, "CDI")
	must.SliceEmpty(t, w.claims())
	noContainer(t, task)
}
