// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"

	"nomad-gpu-mem/internal/nvml"
)

// These bound the units of a GPU and of a node: Nomad stores each unit as an object of its
// node, and the whole node must fit into one message.
const (
	maxUnits     = 4096
	maxNodeUnits = 16384
)

// offer adds a readable GPU: how it is divided, and which units are healthy.
func (i *inventory) offer(found nvml.GPU, known gpu, isKnown bool, r reading, set settings) {
	g := known
	g.GPU, g.readAt, g.unitMiB, g.withheld = found, i.readAt, set.unitMiB, nil
	own := set.of(g.id())
	// An offered GPU keeps its division while its memory is unchanged: the driver's reserve
	// may vary a little, and a unit must not vanish while its task runs.
	if !isKnown || known.Memory.TotalMiB != found.Memory.TotalMiB {
		g.reservedMiB = reservedMiB(found.Memory, own)
	}
	inTable, looked := r.table[g.id()]
	held := holdingsOf(inTable.GPU, looked && inTable.Ledger != nil, r.at)
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

// keptAsItIs keeps the division of a GPU that its tasks hold, with all units unhealthy until
// they have ended.
func (g gpu) keptAsItIs(held holdings, r reading, set settings) gpu {
	g.unitMiB, g.units = held.unitMiB, held.of
	g.slices = withPeaks(occupy(g.GPU, g.unitMiB, held, r.users).slices, g.slices)
	return g.unusable(fmt.Sprintf("memory_unit = %q, but tasks hold units of %d MiB; the GPU is offered again when they have ended",
		set.unitText, held.unitMiB))
}

// tooMany returns why a GPU has too many units, or none; "" if neither.
func (i *inventory) tooMany(g gpu, units int, isKnown bool, set settings) string {
	total := units
	for _, other := range i.offered {
		total += other.units
	}
	switch own := set.of(g.id()); {
	case units == 0 && own.reservedMiB > 0 && subtractFloor(g.Memory.TotalMiB, driverReserve(g.Memory)) >= set.unitMiB:
		return fmt.Sprintf("reserved_memory = %q leaves %d of this GPU's %d MiB, not enough for one unit, memory_unit = %q",
			own.reservedText, g.sellableMiB(), g.Memory.TotalMiB, set.unitText)
	case units == 0:
		return fmt.Sprintf("memory_unit = %q is larger than the %d MiB that this GPU can offer", set.unitText, g.sellableMiB())
	case units > maxUnits:
		return fmt.Sprintf("memory_unit = %q makes %d units of this GPU, at most %d are allowed; set at least %dMiB",
			set.unitText, g.sellableMiB()/set.unitMiB, maxUnits, fittingMiB(g.sellableMiB(), maxUnits))
	case total > maxNodeUnits && !isKnown:
		return fmt.Sprintf("memory_unit = %q makes more than %d units of this node's GPUs; set a larger one", set.unitText, maxNodeUnits)
	}
	return ""
}

// fittingMiB returns the least power of two that divides memory into at most so many units.
func fittingMiB(memoryMiB, units uint64) uint64 {
	unit := uint64(1)
	for memoryMiB/unit > units {
		unit *= 2
	}
	return unit
}
