// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// Nomad keeps each unit as an object of its node, and all of a node must fit
// into one message: these bound the units of a GPU and of a node.
const (
	maxUnits     = 4096
	maxNodeUnits = 16384
)

// offer files a GPU that can be read: how it is divided, and what of it can be
// used.
func (i *inventory) offer(found nvml.GPU, known gpu, isKnown bool, r reading, set settings) {
	g := known
	g.GPU, g.readAt, g.unitMiB, g.withheld = found, i.readAt, set.unitMiB, nil
	own := set.of(g.id())
	// The division of a GPU that is offered already stands as long as its memory
	// does: the driver's own share may vary a little, and a unit must not vanish
	// under its task.
	if !isKnown || known.Memory.TotalMiB != found.Memory.TotalMiB {
		g.reservedMiB = reservedMiB(found.Memory, own)
	}
	inTable, told := r.table[g.id()]
	held := holdingsOf(inTable.GPU, told && inTable.Ledger != nil, r.at)
	held.spoilt = inTable.spoilt
	sellable := int(min(g.sellableMiB()/set.unitMiB, maxNodeUnits+1))
	if held.inOtherUnits(set.unitMiB) {
		i.offered = append(i.offered, g.keptAsItIs(held, r, set).blamed(i.xids))
		return
	}
	listed := max(sellable, held.lastUnit()+1)
	if reason := i.tooMany(g, listed, isKnown, set); reason != "" {
		i.refuse(found, reason, set)
		return
	}
	g.units = listed
	g.judge(held, i.xids, i.readAt, set)
	g.account(held, sellable, r, own)
	i.offered = append(i.offered, g)
}

// keptAsItIs keeps a GPU divided as its tasks hold it, and offers nothing of it
// until they have ended.
func (g gpu) keptAsItIs(held holdings, r reading, set settings) gpu {
	g.unitMiB, g.units = held.unitMiB, held.of
	g.slices = withPeaks(occupy(g.GPU, g.unitMiB, held, r.users).slices, g.slices)
	return g.unusable(fmt.Sprintf("memory_unit = %q, but tasks hold units of %d MiB; the GPU is offered again when they have ended",
		set.unitText, held.unitMiB))
}

// sellableMiB is the memory that is made into units.
func (g gpu) sellableMiB() uint64 { return beyond(g.Memory.TotalMiB, g.reservedMiB) }

// tooMany says why a GPU cannot be offered in so many units, or in none.
func (i *inventory) tooMany(g gpu, units int, isKnown bool, set settings) string {
	total := units
	for _, other := range i.offered {
		total += other.units
	}
	switch own := set.of(g.id()); {
	case units == 0 && own.reservedMiB > 0 && beyond(g.Memory.TotalMiB, driverReserve(g.Memory)) >= set.unitMiB:
		return fmt.Sprintf("reserved_memory = %q leaves %d of this GPU's %d MiB, not enough for one unit, memory_unit = %q",
			own.reservedText, g.sellableMiB(), g.Memory.TotalMiB, set.unitText)
	case units == 0:
		return fmt.Sprintf("memory_unit = %q is larger than the %d MiB that this GPU can give", set.unitText, g.sellableMiB())
	case units > maxUnits:
		return fmt.Sprintf("memory_unit = %q makes %d units of this GPU, %d are the most; %dMiB would do",
			set.unitText, g.sellableMiB()/set.unitMiB, maxUnits, fittingMiB(g.sellableMiB(), maxUnits))
	case total > maxNodeUnits && !isKnown:
		return fmt.Sprintf("memory_unit = %q makes more than %d units of this node's GPUs; take a larger one", set.unitText, maxNodeUnits)
	}
	return ""
}

// fittingMiB is the least power of two that divides memory into so many units
// at most.
func fittingMiB(memoryMiB, units uint64) uint64 {
	unit := uint64(1)
	for memoryMiB/unit > units {
		unit *= 2
	}
	return unit
}

// judge decides whether a GPU that can be read can be used.
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
		g.health = "its claims in the allocation table cannot be read, so no task can start on it; `nomad-gpu-mem doctor` says why"
	case held.cordon != nil:
		g.health = cordoned(*held.cordon)
	default:
		g.health = ""
	}
}

// maxReason is how many characters of a cordon's reason Nomad is told: it keeps them
// once for each unit. The table has the rest.
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

// account finds out who uses the GPU and withholds what cannot be sold.
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
		spare := beyond(g.Memory.TotalMiB, driverReserve(g.Memory)+uint64(sellable)*g.unitMiB)
		g.pressure = g.pressure.after(now.unmanagedMiB, spare, g.unitMiB)
	}
	g.withheld = withhold(g.units, sellable, g.pressure.units, g.slices, held.outsideNomad())
}

// withPeaks carries over the most that each slice was seen to use.
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

// driverReserve is what the driver keeps for itself, as far as it tells.
func driverReserve(m *nvml.Memory) uint64 {
	if m == nil || m.ReservedMiB == nil {
		return 0
	}
	return *m.ReservedMiB
}

// reservedMiB is what cannot be sold. Without the second version of NVML's
// memory call, what the driver keeps for itself is not known.
func reservedMiB(m *nvml.Memory, own gpuSettings) uint64 { return driverReserve(m) + own.reservedMiB }
