// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

const (
	gpuA = allocator.GPUID("GPU-aaaa")
	gpuB = allocator.GPUID("GPU-bbbb")
)

// slice is a booking of units of 1 GiB on a GPU of 24 GiB.
func slice(gpu allocator.GPUID, units ...int) allocator.Booking {
	return allocator.Booking{GPU: gpu, UnitMiB: 1024, Of: 23, TotalMiB: 24576, Units: allocator.NewUnitSet(units...)}
}

func TestPinWins(t *testing.T) {
	t.Parallel()
	oneGPU := []allocator.Booking{slice(gpuA, 0, 1, 2, 3)}
	twoGPUs := []allocator.Booking{slice(gpuA, 0, 1), slice(gpuB, 7)}
	for _, c := range []struct {
		name     string
		bookings []allocator.Booking
		task     map[string]string
		image    []string
		want     map[string]string
		unset    []string // keys that must not reach the container
	}{{
		name: "no booking, no GPU",
		want: map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"},
	}, {
		name:  "no booking: the image's wish for all",
		image: []string{"NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=12.2"},
		want:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"},
	}, {
		name: "no booking: the job's wish for all",
		task: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "GPU_MEM_LIMIT_MIB": "99999", "GPU_MEM_FRACTION": "1"},
		want: map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"}, unset: []string{"GPU_MEM_LIMIT_MIB", "GPU_MEM_FRACTION"},
	}, {
		name: "no booking: the job's empty and none",
		task: map[string]string{"NVIDIA_VISIBLE_DEVICES": "none"},
		want: map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"},
	}, {
		name: "one GPU", bookings: oneGPU,
		task:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "0"},
		image: []string{"NVIDIA_VISIBLE_DEVICES=all"},
		want: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa", "GPU_MEM_LIMIT_MIB": "4096", "GPU_MEM_UNITS": "4", "GPU_MEM_FRACTION": "0.1666",
			"NVIDIA_DRIVER_CAPABILITIES": "compute,utility", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
			"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1666",
		},
	}, {
		name: "two GPUs in a fixed order", bookings: twoGPUs,
		task: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-bbbb"},
		want: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa,GPU-bbbb", "GPU_MEM_LIMIT_MIB": "2048,1024", "GPU_MEM_UNITS": "2,1", "GPU_MEM_FRACTION": "0.0833,0.0416",
		},
		unset: []string{"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"},
	}, {
		name: "what the user may choose", bookings: oneGPU,
		task: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
		want: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
	}, {
		name: "what the image chose stays the image's", bookings: oneGPU,
		image: []string{"NVIDIA_DRIVER_CAPABILITIES=all", "XLA_PYTHON_CLIENT_MEM_FRACTION=.5", "OTHER=1"},
		unset: []string{"NVIDIA_DRIVER_CAPABILITIES", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "OTHER"},
	}, {
		name: "JAX's newer name", bookings: oneGPU,
		task:  map[string]string{"XLA_CLIENT_MEM_FRACTION": ".3"},
		want:  map[string]string{"XLA_CLIENT_MEM_FRACTION": ".3"},
		unset: []string{"XLA_PYTHON_CLIENT_MEM_FRACTION"},
	}, {
		name: "a name with a value in it", bookings: oneGPU,
		task: map[string]string{
			"NVIDIA_VISIBLE_DEVICES=all,": "x", "NVIDIA_MIG_CONFIG_DEVICES=all": "", "CUDA_DEVICE_ORDER=FASTEST": "_FIRST",
			"MINE": "1", "MINE=2": "3", "URL=a": "b",
		},
		want: map[string]string{
			"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa", "CUDA_DEVICE_ORDER": "FASTEST=_FIRST", "MINE": "1", "URL": "a=b",
		},
		unset: []string{"NVIDIA_MIG_CONFIG_DEVICES"},
	}, {
		name: "ways round the pin", bookings: oneGPU,
		task: map[string]string{
			"NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all", "NVIDIA_IMEX_CHANNELS": "0",
			"NVIDIA_NVSWITCH": "enabled", "NVIDIA_MOFED": "enabled", "NVIDIA_GDS": "enabled", "NVIDIA_GDRCOPY": "enabled",
			"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all", "NVIDIA_CTK_DEBUG": "true", "DOCKER_RESOURCE_GPU": "all", "NVIDIA_GPU_MEMORY_LIMITS": "1",
			"GPU_MEM_RESERVATION_FORGED": `{"gpu":"GPU-bbbb"}`,
		},
		want: map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa"},
		unset: []string{"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_NVSWITCH",
			"NVIDIA_MOFED", "NVIDIA_GDS", "NVIDIA_GDRCOPY", "NVIDIA_REQUIRE_JETPACK", "NVIDIA_CTK_DEBUG",
			"DOCKER_RESOURCE_GPU", "NVIDIA_GPU_MEMORY_LIMITS", "GPU_MEM_RESERVATION_FORGED"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, _ := environment(c.task, nil, c.image, gpuAccess{bookings: c.bookings})
			got := parseEnv(env)
			for key, value := range c.want {
				must.Eq(t, value, got[key], must.Sprint(key))
			}
			for _, key := range c.unset {
				must.MapNotContainsKey(t, got, key)
			}
		})
	}
}

// An image's variable can only be taken away by naming it without a value.
func TestReservedVariablesOfTheImageAreUnset(t *testing.T) {
	t.Parallel()
	env, _ := environment(nil, nil, []string{"NVIDIA_MIG_CONFIG_DEVICES=all", "PATH=/bin"}, gpuAccess{})
	must.Eq(t, []string{"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_VISIBLE_DEVICES=void"}, env)
}

func TestPrivilegedIsAtLeastToldItsGPU(t *testing.T) {
	t.Parallel()
	env, _ := environment(map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}, nil, nil, gpuAccess{bookings: []allocator.Booking{slice(gpuA, 1)}, seesAll: true})
	must.Eq(t, "GPU-aaaa", parseEnv(env)["CUDA_VISIBLE_DEVICES"])
}

func TestOverruledValuesAreTold(t *testing.T) {
	t.Parallel()
	bookings := []allocator.Booking{slice(gpuA, 1)}
	for _, c := range []struct {
		name         string
		task, device map[string]string
		bookings     []allocator.Booking
		want         []string
	}{
		{"nothing to say", map[string]string{"A": "b"}, nil, nil, nil},
		{"the device plugin's own", map[string]string{VisibleDevices: "GPU-bbbb"}, map[string]string{VisibleDevices: "GPU-bbbb"}, bookings, nil},
		{"no GPU wanted", map[string]string{VisibleDevices: "none"}, nil, nil, nil},
		{
			"all without a booking", map[string]string{VisibleDevices: "all"}, nil, nil,
			[]string{`NVIDIA_VISIBLE_DEVICES="all" in the task's environment was replaced by "void": GPUs are given by device blocks only`},
		},
		{
			"all with a booking", map[string]string{VisibleDevices: "all"}, map[string]string{VisibleDevices: "GPU-aaaa"}, bookings,
			[]string{`NVIDIA_VISIBLE_DEVICES="all" in the task's environment was replaced by "GPU-aaaa": GPUs are given by device blocks only`},
		},
		{
			"removed", map[string]string{"NVIDIA_MIG_CONFIG_DEVICES": "all"}, nil, nil,
			[]string{`NVIDIA_MIG_CONFIG_DEVICES="all" in the task's environment was removed: GPUs are given by device blocks only`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, remarks := environment(c.task, c.device, nil, gpuAccess{bookings: c.bookings})
			must.Eq(t, c.want, remarks)
		})
	}
}

// No program can be given such a variable, and Docker tries for a minute.
func TestEnvWithANULIsRefused(t *testing.T) {
	t.Parallel()
	in := newInput(t, ``, ``)
	in.Task.Env = map[string]string{"BAD": "a\x00b"}
	_, _, err := in.Build()
	must.ErrorContains(t, err, `env "BAD"`)
}
