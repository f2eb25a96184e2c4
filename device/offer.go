// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"

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

// tooMany says why a GPU cannot be offered in so many units, or in none.
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
