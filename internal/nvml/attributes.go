// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// describe reads what is constant while the driver is loaded.
func (d *device) describe(gpu *GPU) {
	if pci := may(d, "nvmlDeviceGetPciInfo_v3", d.GetPciInfo); pci != nil {
		gpu.PCIBusID = busID(*pci)
	}
	gpu.NUMANode = d.numaNode(gpu.PCIBusID)
	gpu.ComputeCapability = may(d, "nvmlDeviceGetCudaComputeCapability", func() (Version, nvml.Return) {
		major, minor, ret := d.GetCudaComputeCapability()
		return Version{major, minor}, ret
	})
	gpu.PCIBandwidthMBps = d.pciBandwidth()
	gpu.MaxCoresClockMHz = widen(may(d, "nvmlDeviceGetMaxClockInfo", clock(d.GetMaxClockInfo, nvml.CLOCK_SM)))
	gpu.MaxMemoryClockMHz = widen(may(d, "nvmlDeviceGetMaxClockInfo", clock(d.GetMaxClockInfo, nvml.CLOCK_MEM)))
}

// measure reads what can change while tasks run.
func (d *device) measure(gpu *GPU) {
	d.measureModes(gpu)
	d.measureUse(gpu)
	d.measureErrors(gpu)
}

// measureModes reads what an operator can change while tasks run.
func (d *device) measureModes(gpu *GPU) {
	gpu.PowerLimitW = watts(may(d, "nvmlDeviceGetPowerManagementLimit", d.GetPowerManagementLimit))
	gpu.PersistenceMode = enabled(may(d, "nvmlDeviceGetPersistenceMode", d.GetPersistenceMode))
	gpu.DisplayMode = enabled(may(d, "nvmlDeviceGetDisplayMode", d.GetDisplayMode))
	gpu.ECCMode = enabled(may(d, "nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := d.GetEccMode()
		return current, ret
	}))
}

// measureUse reads what changes constantly.
func (d *device) measureUse(gpu *GPU) {
	if bar1 := may(d, "nvmlDeviceGetBAR1MemoryInfo", d.GetBAR1MemoryInfo); bar1 != nil {
		total, used := floorMiB(bar1.Bar1Total), ceilMiB(bar1.Bar1Used)
		gpu.BAR1MiB, gpu.BAR1UsedMiB = &total, &used
	}
	gpu.PowerW = watts(may(d, "nvmlDeviceGetPowerUsage", d.GetPowerUsage))
	gpu.TemperatureC = widen(may(d, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) {
		return d.GetTemperature(nvml.TEMPERATURE_GPU)
	}))
	gpu.CoresClockMHz = widen(may(d, "nvmlDeviceGetClockInfo", clock(d.GetClockInfo, nvml.CLOCK_SM)))
	gpu.MemoryClockMHz = widen(may(d, "nvmlDeviceGetClockInfo", clock(d.GetClockInfo, nvml.CLOCK_MEM)))
	if rates := may(d, "nvmlDeviceGetUtilizationRates", d.GetUtilizationRates); rates != nil {
		gpu.UtilizationPct, gpu.MemoryBusyPct = widen(&rates.Gpu), widen(&rates.Memory)
	}
	gpu.EncoderPct = widen(may(d, "nvmlDeviceGetEncoderUtilization", first(d.GetEncoderUtilization)))
	gpu.DecoderPct = widen(may(d, "nvmlDeviceGetDecoderUtilization", first(d.GetDecoderUtilization)))
}

// measureErrors reads errors that only a reset of the GPU clears.
func (d *device) measureErrors(gpu *GPU) {
	gpu.UncorrectedECC = may(d, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	gpu.ECCL1 = d.errorsIn(nvml.MEMORY_LOCATION_L1_CACHE)
	gpu.ECCL2 = d.errorsIn(nvml.MEMORY_LOCATION_L2_CACHE)
	gpu.ECCMemory = d.errorsIn(nvml.MEMORY_LOCATION_DEVICE_MEMORY)
	gpu.Rows = may(d, "nvmlDeviceGetRemappedRows", func() (Rows, nvml.Return) {
		_, _, pending, failed, ret := d.GetRemappedRows()
		return Rows{Pending: pending, Failed: failed}, ret
	})
	gpu.RetiredPagesPending = enabled(may(d, "nvmlDeviceGetRetiredPagesPendingStatus", d.GetRetiredPagesPendingStatus))
	gpu.Recovery = d.recovery()
	gpu.Fabric = d.fabric()
}

// errorsIn counts uncorrected errors of one kind of memory.
func (d *device) errorsIn(location nvml.MemoryLocation) *uint64 {
	return may(d, "nvmlDeviceGetMemoryErrorCounter", func() (uint64, nvml.Return) {
		return d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC, location)
	})
}

// first drops the second value, over which time the first was measured.
func first(get func() (uint32, uint32, nvml.Return)) func() (uint32, nvml.Return) {
	return func() (uint32, nvml.Return) {
		value, _, ret := get()
		return value, ret
	}
}

func busID(pci nvml.PciInfo) string {
	var b strings.Builder
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// laneMBps is the bandwidth of one PCIe lane in MB/s, by generation, after
// line coding.
var laneMBps = []uint64{1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}

func (d *device) pciBandwidth() *uint64 {
	generation := may(d, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration)
	width := may(d, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth)
	if generation == nil || width == nil || *generation < 1 || *generation >= len(laneMBps) || *width < 1 {
		return nil
	}
	bandwidth := laneMBps[*generation] * uint64(*width)
	return &bandwidth
}

func clock(get func(nvml.ClockType) (uint32, nvml.Return), which nvml.ClockType) func() (uint32, nvml.Return) {
	return func() (uint32, nvml.Return) { return get(which) }
}

func widen(value *uint32) *uint64 {
	if value == nil {
		return nil
	}
	wide := uint64(*value)
	return &wide
}

func watts(milliwatts *uint32) *uint64 {
	if milliwatts == nil {
		return nil
	}
	w := (uint64(*milliwatts) + 500) / 1000
	return &w
}

func enabled(state *nvml.EnableState) *bool {
	if state == nil {
		return nil
	}
	on := *state == nvml.FEATURE_ENABLED
	return &on
}
