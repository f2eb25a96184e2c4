// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device queries one GPU or MIG instance. The first fatal error stays in err, and all later
// queries are skipped.
type device struct {
	*probe
	nvml.Device
	err      error
	doubtful bool // a value that may skipped could be available another time
}

// must queries a value without which the GPU is unusable.
func must[T any](d *device, function string, call func() (T, nvml.Return)) T {
	var value T
	if d.err == nil {
		value, d.err = query(d.probe, function, call)
	}
	return value
}

// may queries a value that not every GPU, driver or user has.
func may[T any](d *device, function string, call func() (T, nvml.Return)) *T {
	if d.err != nil {
		return nil
	}
	value, err := query(d.probe, function, call)
	if isGone(err) {
		d.err = err
	}
	if err != nil {
		d.doubtful = d.doubtful || !cannotTell(err)
		return nil
	}
	return &value
}

// mayBe is may for a value that some GPUs lack, but that must not be unknown on others.
func mayBe[T any](d *device, function string, call func() (T, nvml.Return)) *T {
	if d.err != nil {
		return nil
	}
	value, err := query(d.probe, function, call)
	if err != nil {
		if !cannotTell(err) {
			d.err = err
		}
		return nil
	}
	return &value
}

// failed keeps the GPU's identity and drops the incomplete reading.
func (g GPU) failed(err error) GPU {
	return GPU{UUID: g.UUID, Index: g.Index, Parent: g.Parent, GPUInstance: g.GPUInstance, Name: g.Name, Err: err}
}

// canMIG reports whether the GPU has a MIG mode at all.
func (d *device) canMIG() bool { return d.migMode() != nil }

func (d *device) migEnabled() bool {
	mode := d.migMode()
	return mode != nil && *mode == nvml.DEVICE_MIG_ENABLE
}

func (d *device) migMode() *int {
	return mayBe(d, "nvmlDeviceGetMigMode", func() (int, nvml.Return) {
		current, _, ret := d.GetMigMode()
		return current, ret
	})
}

// readInstances reads the MIG instances of a GPU. Their numbers have gaps.
func (d *device) readInstances(parent GPU) []GPU {
	count, err := query(d.probe, "nvmlDeviceGetMaxMigDeviceCount", d.GetMaxMigDeviceCount)
	if err != nil {
		return []GPU{{Index: parent.Index, Parent: parent.UUID, Err: err}}
	}
	var instances []GPU
	for i := range count {
		handle, err := query(d.probe, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return d.GetMigDeviceHandleByIndex(i)
		})
		switch {
		case hasCode(err, nvml.ERROR_NOT_FOUND):
		case err != nil:
			instances = append(instances, GPU{Index: parent.Index, Parent: parent.UUID, Err: err})
		default:
			instances = append(instances, readInstance(&device{probe: d.probe, Device: handle}, parent))
		}
	}
	return instances
}

// name is the product name, with invalid UTF-8 replaced: Nomad ends a plugin that sends such a
// string.
func (d *device) name() string {
	return strings.ToValidUTF8(must(d, "nvmlDeviceGetName", d.GetName), "\uFFFD")
}

// readInstance reads an instance's own values; the rest is its GPU's.
func readInstance(d *device, parent GPU) GPU {
	instance := parent
	instance.Parent, instance.MIGEnabled = parent.UUID, false
	instance.UtilizationPct, instance.MemoryBusyPct = nil, nil
	instance.UUID = must(d, "nvmlDeviceGetUUID", d.GetUUID)
	instance.GPUInstance = may(d, "nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId)
	instance.Name = d.name()
	instance.MIGProfile = migProfile(instance.Name)
	d.readMemory(&instance)
	if d.err != nil {
		return instance.failed(d.err)
	}
	return instance
}

var migName = regexp.MustCompile(`\bMIG (\S+)$`)

// migProfile finds "1g.10gb" in "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
func migProfile(name string) string {
	if found := migName.FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return ""
}

func (d *device) readMemory(gpu *GPU) {
	gpu.Memory = d.memory()
	gpu.Processes = d.processes()
}

// memory prefers the second version of the call: the first counts the driver's reserve as
// used. Under WSL the second exists but fails.
func (d *device) memory() *Memory {
	if v2 := may(d, "nvmlDeviceGetMemoryInfo_v2", d.GetMemoryInfo_v2); v2 != nil && v2.Total > 0 {
		reserved := ceilMiB(v2.Reserved)
		return &Memory{TotalMiB: floorMiB(v2.Total), UsedMiB: ceilMiB(v2.Used), FreeMiB: floorMiB(v2.Free), ReservedMiB: &reserved}
	}
	if v1 := mayBe(d, "nvmlDeviceGetMemoryInfo", d.GetMemoryInfo); v1 != nil && v1.Total > 0 {
		return &Memory{TotalMiB: floorMiB(v1.Total), UsedMiB: ceilMiB(v1.Used), FreeMiB: floorMiB(v1.Free)}
	}
	return nil
}

// processes merges NVML's three lists. A process with compute and graphics is in two of them,
// with the same memory. Drivers before R510 have other versions of these calls, so their
// processes are unknown.
func (d *device) processes() []Process {
	lists := []*[]nvml.ProcessInfo{
		may(d, "nvmlDeviceGetComputeRunningProcesses_v3", d.GetComputeRunningProcesses),
		may(d, "nvmlDeviceGetGraphicsRunningProcesses_v3", d.GetGraphicsRunningProcesses),
		may(d, "nvmlDeviceGetMPSComputeRunningProcesses_v3", d.GetMPSComputeRunningProcesses),
	}
	var listed bool
	byPID := map[int]Process{}
	for _, list := range lists {
		if list == nil {
			continue
		}
		listed = true
		for _, info := range *list {
			process := Process{PID: int(info.Pid), UsedMiB: processMiB(info.UsedGpuMemory)}
			if seen, twice := byPID[process.PID]; twice && seen.UsedMiB != nil {
				process = seen
			}
			byPID[process.PID] = process
		}
	}
	if !listed {
		return nil
	}
	processes := make([]Process, 0, len(byPID))
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		processes = append(processes, byPID[pid])
	}
	return processes
}

// processMiB is nil for NVML_VALUE_NOT_AVAILABLE, all bits set, which is not a number.
func processMiB(bytes uint64) *uint64 {
	if bytes == ^uint64(0) {
		return nil
	}
	mib := ceilMiB(bytes)
	return &mib
}

func floorMiB(bytes uint64) uint64 { return bytes >> 20 }

func ceilMiB(bytes uint64) uint64 { return (bytes + 1<<20 - 1) >> 20 }
