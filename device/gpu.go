// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// gpu is one GPU or MIG instance.
type gpu struct {
	nvml.GPU           // the last good reading
	readAt   time.Time // of that reading

	unitMiB     uint64
	reservedMiB uint64 // kept back by the driver and by configuration
	units       int

	// health is why no unit is healthy, or empty. For a refused GPU it is why the GPU is
	// not offered.
	health   string
	withheld []withholding // units that are unhealthy though the GPU is not

	record       record
	pressure     pressure
	slices       []slice
	unmanagedMiB uint64
}

func (g gpu) id() allocator.GPUID { return allocator.GPUID(g.UUID) }

// unhealthy returns the units that Nomad must not place tasks on.
func (g gpu) unhealthy() allocator.UnitSet {
	var units allocator.UnitSet
	if g.health != "" {
		for unit := range g.units {
			units = append(units, unit)
		}
		return units
	}
	for _, w := range g.withheld {
		units = units.Union(w.units)
	}
	return units
}

// healthyUnits returns how many units Nomad may place tasks on.
func (g gpu) healthyUnits() int { return g.units - len(g.unhealthy()) }

// sellableMiB returns the memory that is divided into units.
func (g gpu) sellableMiB() uint64 { return subtractFloor(g.Memory.TotalMiB, g.reservedMiB) }

// unusable returns the GPU as unhealthy, with its last reading and the reason.
func (g gpu) unusable(reason string) gpu {
	g.health, g.withheld = reason, nil
	return g
}

// failing is unusable because of a fault of the GPU, which counts for probation.
func (g gpu) failing(reason string) gpu {
	g.record = g.record.failed(reason, unreadable)
	return g.unusable(reason)
}

// blamed counts a critical Xid that came with this reading, whatever else the reading
// says of the GPU: NVML reports each Xid once.
func (g gpu) blamed(xids []noted) gpu {
	if xid, failed := firstCritical(xids, g.GPU); failed {
		g.record = g.record.failed(xid.String(), reported)
	}
	return g
}

// judge decides whether a readable GPU is healthy.
func (g *gpu) judge(held holdings, xids []noted, now time.Time, set settings) {
	switch xid, failed := firstCritical(xids, g.GPU); {
	case failed:
		g.record = g.record.failed(xid.String(), reported)
	case wantsRecovery(g.GPU):
		g.record = g.record.failed(recovery(g.GPU), reported)
	default:
		g.record = g.record.well(now, set.probation)
	}
	switch reason := defect(g.GPU); {
	case reason != "":
		g.health = reason
	case g.record.fault != "":
		g.health = g.record.reason(set.probation)
	case held.stuck() != "":
		g.health = held.stuck()
	case held.faults.Rest(now) != "":
		g.health = held.faults.Rest(now)
	case held.spoilt:
		g.health = "its claims in the allocation table cannot be read, so no task can start on it; `nomad-gpu-mem doctor` shows why"
	case held.cordon != nil:
		g.health = cordoned(*held.cordon)
	default:
		g.health = ""
	}
}

// maxReason is how many characters of a cordon's reason Nomad gets: it stores them once per
// unit. The table has the rest.
const maxReason = 200

func cordoned(c allocator.Cordon) string {
	if c.Reason == "" {
		return "cordoned"
	}
	if reason := []rune(c.Reason); len(reason) > maxReason {
		return "cordoned: " + string(reason[:maxReason]) + "…"
	}
	return "cordoned: " + c.Reason
}

// account determines who uses the GPU's memory and withholds units accordingly.
func (g *gpu) account(held holdings, sellable int, r reading, own gpuSettings) {
	now := occupy(g.GPU, g.unitMiB, held, r.users)
	g.slices = withPeaks(now.slices, g.slices)
	if !now.uncertain {
		g.unmanagedMiB = now.unmanagedMiB
	}
	switch {
	case own.allowUnmanaged:
		g.pressure = pressure{}
	case !now.uncertain && !r.between:
		spare := subtractFloor(g.Memory.TotalMiB, driverReserve(g.Memory)+uint64(sellable)*g.unitMiB)
		g.pressure = g.pressure.after(now.unmanagedMiB, spare, g.unitMiB)
	}
	g.withheld = withhold(g.units, sellable, g.pressure.units, g.slices, held.outsideNomad())
}

// withPeaks carries over the peak use of each slice.
func withPeaks(now, before []slice) []slice {
	for i := range now {
		now[i].peakMiB = max(now[i].peakMiB, now[i].usedMiB)
		for _, old := range before {
			if old.key == now[i].key {
				now[i].peakMiB = max(now[i].peakMiB, old.peakMiB)
			}
		}
	}
	return now
}

// driverReserve returns the driver's own reserve, as far as the driver reports it.
func driverReserve(m *nvml.Memory) uint64 {
	if m == nil || m.ReservedMiB == nil {
		return 0
	}
	return *m.ReservedMiB
}

// reservedMiB returns the memory that is not offered. Without the second version of NVML's
// memory call the driver's own reserve is unknown.
func reservedMiB(m *nvml.Memory, own gpuSettings) uint64 { return driverReserve(m) + own.reservedMiB }
