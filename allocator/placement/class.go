// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// kind is what GPUs have in common that differ in free memory only.
type kind struct {
	model            string
	sizeMiB, unitMiB int
}

// never is a need that no GPU can meet.
const never = math.MaxInt32

// class is a kind of request in numbers.
type class struct {
	cpu, mem int
	asks     []ask
	order    []int // asks[i] is the request's Asks[order[i]]
}

// ask is one Ask in numbers. A GPU fits if its free memory meets the need of its
// kind: that is all of it for a whole GPU, and never for a wrong model.
type ask struct {
	need  []int32 // MiB, by kind
	apart uint64  // one bit; asks with the same bit go to different GPUs
	fits  func(*GPU) bool
}

// newClass reads a request for a cluster with these kinds of GPUs.
func newClass(r Request, kinds []kind) class {
	c := class{cpu: r.CPU, mem: r.MemoryMiB, order: make([]int, len(r.Asks))}
	for i := range r.Asks {
		c.order[i] = i
	}
	// The largest first: it has the least choice.
	slices.SortStableFunc(c.order, func(i, j int) int { return cmp.Compare(r.Asks[j].rank(), r.Asks[i].rank()) })
	bits := map[string]uint64{"": 0}
	for _, i := range c.order {
		a := r.Asks[i]
		if _, known := bits[a.Apart]; !known {
			bits[a.Apart] = 1 << (len(bits) - 1)
		}
		c.asks = append(c.asks, ask{need: a.needs(kinds), apart: bits[a.Apart], fits: a.Fits})
	}
	return c
}

// rank orders asks by size, without regard to units.
func (a Ask) rank() int {
	if a.Whole {
		return math.MaxInt
	}
	return max(a.Units, a.MiB)
}

func (a Ask) needs(kinds []kind) []int32 {
	need := make([]int32, len(kinds))
	for i, k := range kinds {
		need[i] = a.need(k)
	}
	return need
}

func (a Ask) need(k kind) int32 {
	need := a.Units * k.unitMiB
	switch {
	case k.sizeMiB == 0: // it was never divided into units
		return never
	case len(a.Models) > 0 && !slices.Contains(a.Models, k.model):
		return never
	case a.Whole:
		need = k.sizeMiB
	case a.MiB > 0:
		need = (a.MiB + k.unitMiB - 1) / k.unitMiB * k.unitMiB
	}
	if need > k.sizeMiB {
		return never
	}
	return int32(need)
}
