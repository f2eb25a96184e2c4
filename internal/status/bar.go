// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"slices"
	"strings"
)

// grouped returns the GPU's units in drawing order: those of each claim together, then the
// free ones, then the unavailable ones. Their numbers do not matter to an operator: Nomad
// picks units in any order.
func grouped(g GPU) []rune {
	var units []rune
	for _, claim := range g.Claims {
		units = append(units, slices.Repeat([]rune(claim.Mark), claim.UnitCount)...)
	}
	for _, rest := range []rune{freeUnit, unavailableUnit} {
		count := strings.Count(g.Map, string(rest))
		units = append(units, slices.Repeat([]rune{rest}, count)...)
	}
	return units
}

// bar draws units in at most width cells. All units are equally wide: several cells each,
// or several units per cell if the GPU has more units than cells.
func bar(units []rune, width int) []rune {
	if len(units) == 0 || width < 1 {
		return nil
	}
	var cells []rune
	if wide := width / len(units); wide > 0 {
		for _, unit := range units {
			for range wide {
				cells = append(cells, unit)
			}
		}
		return cells
	}
	perCell := (len(units) + width - 1) / width
	shown := map[rune]bool{}
	for group := range slices.Chunk(units, perCell) {
		cell := summary(group, shown)
		shown[cell] = true
		cells = append(cells, cell)
	}
	return cells
}

// summary returns the unit to draw for a group of units: a claim that is not shown yet,
// else the claim with the most units, else a free unit.
func summary(group []rune, shown map[rune]bool) rune {
	best, most := rune(unavailableUnit), 0
	count := map[rune]int{}
	for _, unit := range group {
		if unit == unavailableUnit {
			continue
		}
		if unit == freeUnit {
			if most == 0 {
				best = freeUnit
			}
			continue
		}
		if !shown[unit] {
			return unit
		}
		if count[unit]++; count[unit] > most {
			best, most = unit, count[unit]
		}
	}
	return best
}

// usedCells returns how many of a bar's cells show the used memory. The whole bar is the
// offered memory; use beyond it is cut off.
func usedCells(cells int, m Memory) int {
	if m.UsedMiB == 0 || m.OfferedMiB == 0 {
		return 0
	}
	share := float64(m.UsedMiB) / float64(m.OfferedMiB) * float64(cells)
	return min(max(int(share+0.5), 1), cells)
}
