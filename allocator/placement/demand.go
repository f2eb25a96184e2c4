package placement

import (
	"cmp"
	"math"
	"slices"
)

// Class is a kind of task that is expected, and how often: any measure will do,
// such as a count.
type Class struct {
	Request Request // without Fits
	Weight  float64
}

// target is the demand in numbers, for one policy and one cluster.
type target struct {
	classes   []targetClass
	gpuMiB    int64   // mean size of the cluster's GPUs
	mibPerCPU int64   // GPU memory that goes with a unit of CPU, a measure
	price     []int64 // by kind: how scarce its memory is, a measure of 0 to 1
}

// targetClass is a kind of task that is expected.
type targetClass struct {
	cpu, mem int
	count    int32   // GPUs that it needs
	need     []int32 // MiB of each, by kind; of asks that differ, the largest
	weight   int64   // all weights together are one
}

// newTarget reads the demand.
func newTarget(demand []Class, want Target, c supply) *target {
	t := &target{gpuMiB: c.gpuMiB(), price: make([]int64, len(c.kinds))}
	demand = usual(demand, want.CoverPermille)
	var total, cpu, gpu float64
	weights := make([]float64, len(demand))
	for i, d := range demand {
		size := t.gpus(d.Request, c)
		cpu += d.Weight * float64(d.Request.CPU) * min(1, math.Ceil(size))
		gpu += d.Weight * size
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
			t.classes = append(t.classes, newTargetClass(d.Request, c.kinds, weights[i]/total))
		}
	}
	if cpu > 0 {
		t.mibPerCPU = int64(gpu * float64(t.gpuMiB) / cpu / spareCPU * one)
	}
	return t
}

// spareCPU is how much more CPU should be kept for a free GPU than the mean
// task uses: tasks differ, and the rest of an average is no use.
const spareCPU = 1.1

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

func newTargetClass(r Request, kinds []kind, share float64) targetClass {
	c := newClass(r, kinds)
	t := targetClass{cpu: c.cpu, mem: c.mem, count: int32(len(c.asks)), weight: int64(math.Round(share * one))}
	if len(c.asks) > 0 {
		t.need = c.asks[0].need
	}
	return t
}

// gpus is the size of a request in GPUs of mean size.
func (t *target) gpus(r Request, c supply) float64 {
	var size float64
	for _, a := range r.Asks {
		switch {
		case a.Whole:
			size++
		case a.MiB > 0:
			size += float64(a.MiB) / float64(t.gpuMiB)
		default:
			size += float64(a.Units) * c.unitMiB() / float64(t.gpuMiB)
		}
	}
	return size
}

// supply is what the cluster has, full or not.
type supply struct {
	kinds []kind
	gpus  []int // of each kind
}

// supply counts the cluster's GPUs.
func (p *Placer) supply() supply {
	s := supply{kinds: p.kinds, gpus: make([]int, len(p.kinds))}
	for i := range p.nodes {
		for _, g := range p.nodes[i].gpus {
			s.gpus[g.kind]++
		}
	}
	return s
}

func (s supply) gpuMiB() int64 {
	return int64(s.mean(func(k kind) int { return k.sizeMiB }))
}

func (s supply) unitMiB() float64 { return s.mean(func(k kind) int { return k.unitMiB }) }

// mean is over all GPUs, 1 at least.
func (s supply) mean(of func(kind) int) float64 {
	var sum, count float64
	for i, k := range s.kinds {
		sum += float64(s.gpus[i] * of(k))
		count += float64(s.gpus[i])
	}
	if count == 0 {
		return 1
	}
	return max(1, sum/count)
}
