package device

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
)

// Stats streams the use of every offered GPU, from the readings that
// Fingerprint's work makes: one message per reading at most, and none sooner
// than interval after the one before. It ends with ctx.
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// groupStats has every unit that was fingerprinted: Nomad warns about each one
// that it misses. Units of one GPU share one value.
func groupStats(i inventory) []*device.DeviceGroupStats {
	groups := make([]*device.DeviceGroupStats, 0, len(i.offered))
	for _, g := range i.offered {
		shared := deviceStats(g)
		units := make(map[string]*device.DeviceStats, g.units)
		for unit := range g.units {
			units[allocator.UnitID(g.id(), unit)] = shared
		}
		groups = append(groups, &device.DeviceGroupStats{Vendor: Vendor, Type: Type, Name: g.UUID, InstanceStats: units})
	}
	return groups
}

// deviceStats is one GPU's last good reading.
func deviceStats(g gpu) *device.DeviceStats {
	memory := statSet{
		"total": mib(g.Memory.TotalMiB, "Memory of the GPU"),
		"used":  mib(g.Memory.UsedMiB, "Memory in use by all processes"),
		"free":  mib(g.Memory.FreeMiB, "Memory that nothing uses"),
		"unit":  mib(g.unitMiB, "Memory of one unit"),
	}
	memory.add("reserved", g.Memory.ReservedMiB, structs.UnitMiB, "Memory kept by the driver")
	load := statSet{}
	load.add("utilization", g.UtilizationPct, "%", "Time with at least one kernel running")
	load.add("memory_busy", g.MemoryBusyPct, "%", "Time with memory being read or written")
	load.add("cores_clock", g.CoresClockMHz, structs.UnitMHz, "Clock of the cores")
	load.add("memory_clock", g.MemoryClockMHz, structs.UnitMHz, "Clock of the memory")
	top := statSet{"health": {StringVal: &g.health, Desc: "Why no unit can be used; empty if healthy"}}
	top.add("temperature", g.TemperatureC, "°C", "Temperature of the GPU")
	top.add("power", g.PowerW, structs.UnitW, "Power drawn by the GPU")
	top.add("uncorrected_ecc", g.UncorrectedECC, "", "Uncorrected memory errors since the driver was loaded")
	return &device.DeviceStats{
		Summary: summary(g),
		Stats: &structs.StatObject{
			Attributes: top,
			Nested: map[string]*structs.StatObject{
				"memory": {Attributes: memory},
				"load":   {Attributes: load},
			},
		},
		Timestamp: g.readAt,
	}
}

func summary(g gpu) *structs.StatValue {
	s := mib(g.Memory.UsedMiB, "Used of all memory of the GPU")
	total := int64(g.Memory.TotalMiB)
	s.IntDenominatorVal = &total
	return s
}

// statSet leaves out what a GPU cannot tell.
type statSet map[string]*structs.StatValue

func (s statSet) add(name string, value *uint64, unit, desc string) {
	if value != nil {
		s[name] = integer(*value, unit, desc)
	}
}

func mib(value uint64, desc string) *structs.StatValue { return integer(value, structs.UnitMiB, desc) }

func integer(value uint64, unit, desc string) *structs.StatValue {
	n := int64(value)
	return &structs.StatValue{IntNumeratorVal: &n, Unit: unit, Desc: desc}
}
