// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
)

// VisibleDevices is what the NVIDIA runtime reads to decide which GPUs a
// container sees. "void" means none, and it also silences old CUDA images, which
// mean "all" by leaving it unset.
const (
	VisibleDevices = "NVIDIA_VISIBLE_DEVICES"
	NoDevices      = "void"
)

// driverCapabilities is which parts of NVIDIA's driver the runtime gives a container.
const driverCapabilities = "NVIDIA_DRIVER_CAPABILITIES"

// pinEnv is the part of the environment that ties a container to its slices.
// Nothing may override it.
//
//	NVIDIA_VISIBLE_DEVICES  the UUIDs of the booked GPUs, or "void" if they come by CDI: the
//	                        NVIDIA runtime must add none to them
//	GPU_MEM_UUIDS           the UUIDs of the booked GPUs
//	GPU_MEM_LIMIT_MIB       memory of each slice in MiB, in the same order
//	GPU_MEM_UNITS           number of units of each slice, in the same order
//	GPU_MEM_FRACTION        each slice as a share of its GPU's whole memory, likewise
//
// SeesAll says that the container can use every GPU of the host all the same.
func pinEnv(bookings []allocator.Booking, way config.Injection, seesAll bool) map[string]string {
	if len(bookings) == 0 {
		return map[string]string{VisibleDevices: NoDevices}
	}
	uuids := Listed(bookings, func(b allocator.Booking) string { return string(b.GPU) })
	pin := map[string]string{
		VisibleDevices:      uuids,
		"GPU_MEM_UUIDS":     uuids,
		"GPU_MEM_LIMIT_MIB": Listed(bookings, func(b allocator.Booking) string { return strconv.FormatUint(b.MiB(), 10) }),
		"GPU_MEM_UNITS":     Listed(bookings, func(b allocator.Booking) string { return strconv.Itoa(len(b.Units)) }),
		"GPU_MEM_FRACTION":  Listed(bookings, fraction),
	}
	if way == config.ByCDI {
		pin[VisibleDevices] = NoDevices
	}
	if seesAll {
		// A privileged container has every device node, and one under WSL the node of
		// all GPUs: this at least keeps well-behaved programs on their own GPU.
		pin["CUDA_VISIBLE_DEVICES"] = uuids
	}
	return pin
}

// defaultEnv are values that a task or its image may choose otherwise. isSet tells
// whether one of them did.
func defaultEnv(bookings []allocator.Booking, isSet func(key string) bool) map[string]string {
	env := map[string]string{}
	if len(bookings) == 0 {
		return env
	}
	for key, value := range map[string]string{
		driverCapabilities:               "compute,utility",
		"CUDA_DEVICE_ORDER":              "PCI_BUS_ID", // NVML's order; CUDA's own puts the fastest first
		"TF_FORCE_GPU_ALLOW_GROWTH":      "true",       // else TensorFlow takes the whole GPU at its start
		"XLA_PYTHON_CLIENT_MEM_FRACTION": xlaFraction(bookings, isSet),
	} {
		if value != "" && !isSet(key) {
			env[key] = value
		}
	}
	return env
}

// xlaFraction is the share of the GPU's whole memory that JAX may take. It speaks of
// one GPU. All versions of JAX read this name; the newer XLA_CLIENT_MEM_FRACTION means
// nothing to those before September 2024, and later ones refuse the two side by side,
// also if a program sets the older one itself.
func xlaFraction(bookings []allocator.Booking, isSet func(string) bool) string {
	if len(bookings) != 1 || isSet("XLA_CLIENT_MEM_FRACTION") {
		return ""
	}
	return fraction(bookings[0])
}

// fraction is a slice as a share of its GPU's whole memory, of which frameworks
// speak. It is rounded down, so that a GPU's slices together never exceed it.
func fraction(b allocator.Booking) string {
	whole := max(b.TotalMiB, uint64(b.Of)*b.UnitMiB)
	share := float64(b.MiB()) / float64(whole)
	return fmt.Sprintf("%.4f", math.Floor(share*10_000)/10_000)
}

// reservedKey reports whether a variable belongs to this driver, or would let the NVIDIA
// runtime show the container more than its slices. Such keys are taken out of the task's
// and the image's environment.
func reservedKey(key string) bool {
	switch key {
	case VisibleDevices,
		"NVIDIA_IMEX_CHANNELS", // memory of other nodes
		"NVIDIA_NVSWITCH",      // fabric management
		"NVIDIA_MOFED",         // every node below /dev/infiniband
		"NVIDIA_GDS",           // nvidia-fs: storage to and from any GPU
		"NVIDIA_GDRCOPY",       // gdrdrv: memory of any GPU
		"NVIDIA_DRIVER_ROOT", "NVIDIA_DEV_ROOT",
		"GPU_MEM_UUIDS",
		"GPU_MEM_LIMIT_MIB",
		"GPU_MEM_UNITS",
		"GPU_MEM_FRACTION":
		return true
	}
	for _, prefix := range []string{
		allocator.BookingEnvPrefix,                                           // only DeviceEnv carries bookings
		"NVIDIA_MIG_",                                                        // rights to repartition GPUs, and to see all MIG instances
		"NVIDIA_GPU_MEMORY_",                                                 // limits that the runtime writes into the GPU driver
		"NVIDIA_REQUIRE_JETPACK",                                             // mounts and devices of the host, on Jetson
		"NVIDIA_CTK_", "NVIDIA_CDI_", "NVIDIA_CONTAINER_", "NVIDIA_RUNTIME_", // Settings of the toolkit's own programs
		"DOCKER_RESOURCE_", // the runtime's "swarm-resource" takes precedence over NVIDIA_VISIBLE_DEVICES
	} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Listed joins one value per booking, in the order of the GPUs.
func Listed(bookings []allocator.Booking, value func(allocator.Booking) string) string {
	values := make([]string, len(bookings))
	for i, b := range bookings {
		values[i] = value(b)
	}
	return strings.Join(values, ",")
}
