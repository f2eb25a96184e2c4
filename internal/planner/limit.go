// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator/placement"
)

// limit says which GPUs an ask may have, besides what the job says of them. It
// goes into the job, so that Nomad follows it too.
type limit struct {
	from, below int      // from <= index < below, 0 is no bound: what keeps the asks of a task apart
	units       int      // a GPU of exactly so many units, if not 0: what makes a count a whole GPU
	unitMiB     int      // a unit of at least this size, if not 0: what makes a count so many MiB
	gpus        []string // one of these UUIDs, if not nil
}

// What limits and pins are written with.
const (
	targetNode    = "${node.unique.id}"
	targetGPU     = "${device.model}" // the name of a device group: the UUID
	targetIndex   = "${device.attr.index}"
	targetUnits   = "${device.attr.units}"
	targetUnitMiB = "${device.attr.memory_unit}"
	oneOf         = "set_contains_any"
)

func (l limit) allows(g *placement.GPU) bool {
	index := numberOf(g.Data.(*gpuData).device, "index")
	return index >= l.from && (l.below == 0 || index < l.below) &&
		(l.units == 0 || g.Units == l.units) && g.UnitMiB >= l.unitMiB &&
		(l.gpus == nil || slices.Contains(l.gpus, g.ID))
}

// constraints writes the limit as a device block has it.
func (l limit) constraints() []*api.Constraint {
	var all []*api.Constraint
	add := func(target, operand, value string) {
		all = append(all, &api.Constraint{LTarget: target, Operand: operand, RTarget: value})
	}
	if l.from > 0 {
		add(targetIndex, ">=", strconv.Itoa(l.from))
	}
	if l.below > 0 {
		add(targetIndex, "<", strconv.Itoa(l.below))
	}
	if l.units > 0 {
		add(targetUnits, "=", strconv.Itoa(l.units))
	}
	if l.unitMiB > 0 {
		add(targetUnitMiB, ">=", fmt.Sprintf("%d MiB", l.unitMiB))
	}
	return all
}

// settle takes from the first place what holds for all instances of the group:
// they share one job, so a count is the same for all.
func (p *planning) settle(w *wanted, d placement.Decision) {
	gpus := make([]*placement.GPU, len(d.Slices))
	for i, s := range d.Slices {
		gpus[i] = p.gpu(d.Node, s.GPU)
	}
	for i, a := range w.asks {
		switch {
		case a.need.Whole:
			w.limits[i].units = gpus[i].Units
		case a.need.MiB > 0:
			w.limits[i].unitMiB = gpus[i].UnitMiB
		}
		w.setCount(i, d.Slices[i].Units)
	}
	for _, together := range w.tasksApart() {
		p.separate(w, together, gpus)
	}
}
