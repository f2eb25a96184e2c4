// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/pause"
)

// Stats streams the use of every offered GPU, from the readings of the poll: at most one
// message per reading and per interval. It ends with ctx.
func (p *Plugin) Stats(ctx context.Context, interval time.Duration) (<-chan *device.StatsResponse, error) {
	responses := make(chan *device.StatsResponse)
	p.work.Go(func() { p.streamStats(ctx, max(interval, minPeriod), responses) })
	return responses, nil
}

func (p *Plugin) streamStats(ctx context.Context, interval time.Duration, responses chan<- *device.StatsResponse) {
	defer close(responses)
	var sent time.Time // readAt of the last inventory that was sent
	for {
		newest, changed := p.board.read()
		if !newest.readAt.After(sent) {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case responses <- &device.StatsResponse{Groups: groupStats(newest)}:
			sent = newest.readAt
		}
		if pause.For(ctx, interval) != nil {
			return
		}
	}
}

// groupStats has every fingerprinted unit: Nomad warns about each missing one. Units of one
// slice share one value, and so do free ones.
func groupStats(i inventory) []*device.DeviceGroupStats {
	groups := make([]*device.DeviceGroupStats, 0, len(i.offered))
	for _, g := range i.offered {
		ofGPU := gpuStats(g)
		free := deviceStats(g, ofGPU["Memory state"], ofGPU)
		units := make(map[string]*device.DeviceStats, g.units)
		for unit := range g.units {
			units[allocator.UnitID(g.id(), unit)] = free
		}
		for _, s := range g.slices {
			held := sliceStats(s)
			maps.Copy(held, ofGPU)
			shared := deviceStats(g, held["Slice"], held)
			for _, unit := range s.units {
				if id := allocator.UnitID(g.id(), unit); units[id] != nil {
					units[id] = shared
				}
			}
		}
		groups = append(groups, &device.DeviceGroupStats{Vendor: allocator.DeviceVendor, Type: allocator.DeviceType, Name: g.UUID, InstanceStats: units})
	}
	return groups
}

// deviceStats is as of the GPU's last good reading.
func deviceStats(g gpu, summary *structs.StatValue, all statSet) *device.DeviceStats {
	return &device.DeviceStats{Summary: summary, Stats: &structs.StatObject{Attributes: all}, Timestamp: g.readAt}
}

// gpuStats are those of the whole GPU. Statistics of NVIDIA's device plugin have the same
// names here.
func gpuStats(g gpu) statSet {
	s := statSet{
		"Memory state":     integer(g.Memory.UsedMiB, structs.UnitMiB, "Memory in use by all processes, of all memory of the GPU"),
		"Reserved memory":  integer(g.reservedMiB, structs.UnitMiB, "Memory kept back by the driver or by configuration"),
		"Unmanaged memory": integer(g.unmanagedMiB, structs.UnitMiB, "Memory in use that no slice explains"),
		"Health":           {StringVal: &g.health, Desc: "Why no unit can be used; empty if healthy"},
	}
	s.outOf("Memory state", &g.Memory.TotalMiB)
	s.add("BAR1 buffer state", g.BAR1UsedMiB, structs.UnitMiB, "BAR1 window in use, of all of it")
	s.outOf("BAR1 buffer state", g.BAR1MiB)
	s.add("Power usage", g.PowerW, structs.UnitW, "Power drawn by the GPU, of its limit")
	s.outOf("Power usage", g.PowerLimitW)
	s.add("GPU utilization", g.UtilizationPct, "%", "Time with at least one kernel running")
	s.add("Memory utilization", g.MemoryBusyPct, "%", "Time with memory being read or written")
	s.add("Encoder utilization", g.EncoderPct, "%", "Time in which the encoder was used")
	s.add("Decoder utilization", g.DecoderPct, "%", "Time in which the decoder was used")
	s.add("Temperature", g.TemperatureC, "C", "Temperature of the GPU")
	s.add("ECC L1 errors", g.ECCL1, "#", "Uncorrected errors in L1 caches since the driver was loaded")
	s.add("ECC L2 errors", g.ECCL2, "#", "Uncorrected errors in the L2 cache since the driver was loaded")
	s.add("ECC memory errors", g.ECCMemory, "#", "Uncorrected errors in memory since the driver was loaded")
	s.add("Cores clock", g.CoresClockMHz, structs.UnitMHz, "Clock of the cores")
	s.add("Memory clock", g.MemoryClockMHz, structs.UnitMHz, "Clock of the memory")
	return s
}

// sliceStats are those of one task. Its use is left out unless NVML reports all of it.
func sliceStats(of slice) statSet {
	const desc = "Memory that the task uses, of its slice"
	s := statSet{"Slice": {Unit: structs.UnitMiB, Desc: desc, StringVal: new(fmt.Sprintf("of %d MiB", of.mib))}}
	if !of.partly {
		s["Slice"] = integer(of.usedMiB, structs.UnitMiB, desc)
		s.outOf("Slice", &of.mib)
		s["Slice peak"] = integer(of.peakMiB, structs.UnitMiB, "Most memory that the task was seen to use")
	}
	return s
}

// statSet leaves out values that a GPU does not report.
type statSet map[string]*structs.StatValue

func (s statSet) add(name string, value *uint64, unit, desc string) {
	if value != nil {
		s[name] = integer(*value, unit, desc)
	}
}

// outOf adds the whole that a value is a part of.
func (s statSet) outOf(name string, whole *uint64) {
	if s[name] != nil && whole != nil {
		s[name].IntDenominatorVal = new(int64(*whole))
	}
}

func integer(value uint64, unit, desc string) *structs.StatValue {
	return &structs.StatValue{IntNumeratorVal: new(int64(value)), Unit: unit, Desc: desc}
}
