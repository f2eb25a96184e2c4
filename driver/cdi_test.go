// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

// By CDI, Docker is asked for the booked GPUs, and the NVIDIA runtime has nothing to add to them.
func TestContainerWithGPUsByCDI(t *testing.T) {
	t.Parallel()
	with := func(hcl string, bookings ...allocator.Booking) docker.Spec {
		o := newOrder(t, hcl, ``, bookings...)
		o.injection, o.plainRuntime = config.ByCDI, "runc"
		o.task.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "GPU_MEM_UUIDS": "GPU-bbbb"}
		o.image.Env = []string{"NVIDIA_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=GPU-bbbb"}
		return build(t, o)
	}
	for _, hcl := range []string{``, `runtime = "nvidia"`, `runtime = "runc"`} {
		spec := with(hcl, slice(gpuA, 1), slice(gpuB, 2))
		must.Eq(t, []container.DeviceRequest{{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=GPU-aaaa", "nvidia.com/gpu=GPU-bbbb"}}},
			spec.Host.DeviceRequests)
		must.Eq(t, "runc", spec.Host.Runtime)
		must.SliceContains(t, spec.Config.Env, "NVIDIA_VISIBLE_DEVICES=void")
		must.SliceContains(t, spec.Config.Env, "GPU_MEM_UUIDS=GPU-aaaa,GPU-bbbb")
		must.SliceContains(t, spec.Config.Env, "DOCKER_RESOURCE_GPU")
	}
	none := with(``)
	must.SliceEmpty(t, none.Host.DeviceRequests)
	must.SliceContains(t, none.Config.Env, "NVIDIA_VISIBLE_DEVICES=void")
	must.SliceEmpty(t, build(t, newOrder(t, ``, ``, slice(gpuA, 1))).Host.DeviceRequests)

	o := newOrder(t, `runtime = "kata"`, ``, slice(gpuA, 1))
	o.injection = config.ByCDI
	_, _, err := o.build()
	must.ErrorContains(t, err, `requested runtime "kata" is not allowed`)
}

// Jobs cannot name devices of CDI themselves.
func TestContainerRefusesCDINames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nvidia.com/gpu=all", "nvidia.com/gpu=GPU-aaaa", "/nvidia.com/gpu=all", "/dev/nvidia.com/gpu=0"} {
		_, _, err := newOrder(t, `devices = [{ host_path = "`+name+`" }]`, ``, slice(gpuA, 1)).build()
		must.ErrorContains(t, err, "config.devices", must.Sprint(name))
	}
}
