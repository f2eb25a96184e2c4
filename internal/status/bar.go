// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"slices"
	"strings"
)

// grouped returns the GPU's units in the order in which they are drawn: those of
// each claim together, then the free ones, then those that cannot be had. Which
// units a claim holds means nothing to people: Nomad picks them in any order.
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

// bar draws units in at most width cells. All units are equally wide: some
// cells each, or some units to a cell where the GPU has more units than there
// are cells.
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

// summary returns the unit that stands for a group of them: a claim that would
// not be seen otherwise, else the claim with most units, else what is free.
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

// usedCells returns how many cells of a bar the used memory is worth. A bar of
// that many cells stands for the offered memory; use beyond it is cut off.
func usedCells(cells int, m Memory) int {
	if m.UsedMiB == 0 || m.OfferedMiB == 0 {
		return 0
	}
	share := float64(m.UsedMiB) / float64(m.OfferedMiB) * float64(cells)
	return min(max(int(share+0.5), 1), cells)
}
