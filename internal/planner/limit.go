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

// limit restricts the GPUs of an ask beyond the job's own constraints. It is written into
// the job, so that Nomad follows it too.
type limit struct {
	from, below int      // from <= index < below, 0 is unlimited; keeps a task's asks on different GPUs
	units       int      // exact number of units of the GPU, if not 0; makes the count a whole GPU
	unitMiB     int      // least size of a unit, if not 0; makes the count enough MiB
	gpus        []string // one of these UUIDs, if not nil
}

// Targets and the operand of limits and pins.
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

// constraints returns the limit as constraints of a device block.
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

// settle derives from the first place the counts and limits of all instances: they share
// one job file, so a count is the same for all.
func (p *planning) settle(w *groupPlan, d placement.Decision) {
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
