// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// By CDI, Docker is asked for the booked GPUs, and the NVIDIA runtime has nothing to add to them.
func TestContainerWithGPUsByCDI(t *testing.T) {
	t.Parallel()
	with := func(hcl string, bookings ...allocator.Booking) docker.Spec {
		in := newInput(t, hcl, ``, bookings...)
		in.Injection, in.PlainRuntime = config.ByCDI, "runc"
		in.Task.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "GPU_MEM_UUIDS": "GPU-bbbb"}
		in.Image.Env = []string{"NVIDIA_VISIBLE_DEVICES=all", "DOCKER_RESOURCE_GPU=GPU-bbbb"}
		return build(t, in)
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
	must.SliceEmpty(t, build(t, newInput(t, ``, ``, slice(gpuA, 1))).Host.DeviceRequests)

	in := newInput(t, `runtime = "kata"`, ``, slice(gpuA, 1))
	in.Injection = config.ByCDI
	_, _, err := in.Build()
	must.ErrorContains(t, err, `requested runtime "kata" is not allowed`)
}

// Jobs cannot name devices of CDI themselves.
func TestContainerRefusesCDINames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nvidia.com/gpu=all", "nvidia.com/gpu=GPU-aaaa", "/nvidia.com/gpu=all", "/dev/nvidia.com/gpu=0"} {
		_, _, err := newInput(t, `devices = [{ host_path = "`+name+`" }]`, ``, slice(gpuA, 1)).Build()
		must.ErrorContains(t, err, "config.devices", must.Sprint(name))
	}
}
