// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// Class is a kind of expected task, and its relative frequency, for example a count.
type Class struct {
	Request Request // without Fits
	Weight  float64
}

// target is the demand in numbers, for one policy and one cluster.
type target struct {
	classes    []targetClass // by CPU, the smallest first; see fragments
	weightFrom []int64       // of a class and all that follow
	needs      [][]int32     // the different needs of the classes: MiB, by kind
	gpuMiB     int64         // mean size of the cluster's GPUs
	rates      []int64       // see stranded
	price      []int64       // by kind: how scarce its memory is, a measure of 0 to 1
	rooms      []room        // see rooms.go
	soon       soon          // likewise
	worth      []worth       // by kind; see bids.go
}

// targetClass is a kind of task that is expected.
type targetClass struct {
	cpu, mem int
	count    int32 // GPUs that it needs
	need     int32 // of each: a position in target.needs; of asks that differ, the largest
	weight   int64 // all weights together are one
}

// newTarget computes the parts of the target that the policy uses.
func newTarget(demand []Class, policy Policy, s supply) *target {
	t := &target{gpuMiB: s.gpuMiB(), price: make([]int64, len(s.kinds)), worth: make([]worth, len(s.kinds))}
	t.addClasses(usual(demand, policy.Target.CoverPermille), policy.Target, s)
	if policy.Weights[Stranding] != 0 {
		t.setRates(demand, s)
	}
	if policy.Weights[Scarcity] != 0 {
		t.setPrices(demand, s)
	}
	if policy.Weights[Room] != 0 {
		t.setRooms(demand, s)
	}
	if policy.Weights[Misfit] != 0 {
		t.setWorth(demand, s)
	}
	return t
}

// usual returns the most frequent classes that make up the share of all tasks.
func usual(demand []Class, permille int) []Class {
	demand = slices.Clone(demand)
	slices.SortStableFunc(demand, func(a, b Class) int { return cmp.Compare(b.Weight, a.Weight) })
	if permille == 0 {
		return demand
	}
	var total, sum float64
	for _, d := range demand {
		total += d.Weight
	}
	for i, d := range demand {
		if sum += d.Weight; sum*1000 >= total*float64(permille) {
			return demand[:i+1]
		}
	}
	return demand
}

func (t *target) addClasses(demand []Class, want Target, s supply) {
	weights := make([]float64, len(demand))
	var total float64
	for i, d := range demand {
		size := s.gpusFor(d.Request)
		switch {
		case size == 0 && want.GPUOnly:
		case want.BySize:
			weights[i] = d.Weight * math.Sqrt(size)
		default:
			weights[i] = d.Weight
		}
		total += weights[i]
	}
	for i, d := range demand {
		if weights[i] > 0 {
			t.addClass(newClass(d.Request, s.kinds), int64(math.Round(weights[i]/total*one)))
		}
	}
	slices.SortStableFunc(t.classes, func(a, b targetClass) int { return cmp.Compare(a.cpu, b.cpu) })
	t.weightFrom = make([]int64, len(t.classes)+1)
	for i := len(t.classes) - 1; i >= 0; i-- {
		t.weightFrom[i] = t.weightFrom[i+1] + t.classes[i].weight
	}
}

// addClass adds a class. One that asks for no GPU cannot use any free memory: its need is
// never.
func (t *target) addClass(c class, weight int64) {
	class := targetClass{cpu: c.cpu, mem: c.mem, count: 1, weight: weight}
	need := slices.Repeat([]int32{never}, len(t.price))
	if len(c.asks) > 0 {
		class.count, need = int32(len(c.asks)), c.asks[0].need
	}
	at := slices.IndexFunc(t.needs, func(known []int32) bool { return slices.Equal(known, need) })
	if at < 0 {
		at = len(t.needs)
		t.needs = append(t.needs, need)
	}
	class.need = int32(at)
	t.classes = append(t.classes, class)
}

// The CPU that should be left for a GPU's worth of free memory lies between
// these multiples of what the mean GPU task uses: tasks differ, and the rest of
// an average serves few. All of the range counts, in steps, since a single
// figure that happens to be that of many nodes would change the score in jumps.
const (
	leastCPU  = 0.95
	mostCPU   = 1.45
	rateSteps = 8
)

// setRates finds how much GPU memory goes with a unit of CPU.
func (t *target) setRates(demand []Class, s supply) {
	var cpu, gpus float64
	for _, d := range demand {
		if size := s.gpusFor(d.Request); size > 0 {
			gpus += d.Weight * size
			cpu += d.Weight * float64(d.Request.CPU)
		}
	}
	if cpu == 0 {
		return
	}
	mean := gpus * float64(t.gpuMiB) / cpu
	for i := range rateSteps {
		multiple := leastCPU + (mostCPU-leastCPU)*float64(i)/(rateSteps-1)
		t.rates = append(t.rates, int64(mean/multiple*one))
	}
}

// setPrices finds how scarce the memory of each kind of GPU is: the share of it
// that tasks want that may not have every kind. Such a task wants each of its
// kinds as far as there is of it. All tasks together fill the cluster.
func (t *target) setPrices(demand []Class, s supply) {
	wanted := make([]float64, len(s.kinds))
	var all float64
	for _, d := range demand {
		size := d.Weight * s.gpusFor(d.Request)
		if all += size; size == 0 {
			continue
		}
		need := newClass(d.Request, s.kinds).asks[0].need
		allowed := 0
		for kind, count := range s.gpus {
			if need[kind] != never {
				allowed += count
			}
		}
		if allowed == s.total() {
			continue
		}
		for kind, count := range s.gpus {
			if need[kind] != never && count > 0 {
				wanted[kind] += size / float64(allowed)
			}
		}
	}
	for kind := range wanted {
		if all > 0 {
			t.price[kind] = int64(min(1, wanted[kind]/all*float64(s.total())) * one)
		}
	}
}
