// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"maps"
	"math"
	"slices"
)

// worth is the value of a GPU's free memory for future tasks: the sum of the prices of the
// tasks that fill it best. A GPU filled in one of the best ways is worth its size. If free
// memory is worth less than its amount, the difference is misfit: it will be lost, however well
// future tasks are placed.
//
// The prices are those at which all of the demand, cut into slices, fills the fewest GPUs: the
// dual values of the cutting-stock problem. Unlike fragments, they show that a third and a half
// of a GPU are a bad match if nothing in the demand is a sixth, although either fits well beside
// others.
type worth struct {
	quantum int32   // MiB; amounts between its multiples are worth no more
	of      []int64 // by quanta of free memory, a measure in MiB
}

// misfit is the part of a GPU's free memory that no tasks will fill.
func (t *target) misfit(g gpu) int64 {
	w := &t.worth[g.kind]
	if w.of == nil {
		return 0
	}
	return int64(g.free)<<fraction - w.of[g.free/w.quantum]
}

// setWorth finds the worth of free memory on each kind of GPU.
func (t *target) setWorth(demand []Class, s supply) {
	asked := make([]map[int32]float64, len(s.kinds))
	for k, kind := range s.kinds {
		asked[k] = map[int32]float64{}
		for _, d := range demand {
			for _, a := range d.Request.Asks {
				if need := a.need(kind); int(need) < kind.sizeMiB {
					asked[k][need] += d.Weight
				}
			}
		}
		if kind.sizeMiB == 0 {
			continue // it is not offered
		}
		same := slices.IndexFunc(asked, func(a map[int32]float64) bool { return maps.Equal(a, asked[k]) })
		if same < k && s.kinds[same].sizeMiB == kind.sizeMiB {
			t.worth[k] = t.worth[same]
		} else {
			t.worth[k] = newWorth(asked[k], int32(kind.sizeMiB))
		}
	}
}

// newWorth takes the number of requested slices of each size. A whole GPU is not shared, and
// is worth its size.
func newWorth(counts map[int32]float64, size int32) worth {
	c := newCutting(counts, size)
	prices := c.prices()
	best, _ := c.fill(prices)
	w := worth{quantum: c.quantum, of: make([]int64, len(best))}
	for i, price := range best {
		w.of[i] = int64(price * float64(size) * one)
	}
	w.of[len(w.of)-1] = int64(size) << fraction
	return w
}

// cutting is the problem to cut the slices that are asked for out of the fewest
// GPUs.
type cutting struct {
	quantum int32     // MiB: divides all sizes
	gpu     int       // quanta of a GPU
	sizes   []int     // quanta of a slice
	counts  []float64 // slices of each size
	best    []float64 // see fill
	last    []int
}

func newCutting(counts map[int32]float64, size int32) *cutting {
	c := &cutting{quantum: size}
	for need := range counts {
		c.quantum = gcd(need, c.quantum)
	}
	c.gpu = int(size / c.quantum)
	for need := c.quantum; need < size; need += c.quantum {
		if count := counts[need]; count > 0 {
			c.sizes = append(c.sizes, int(need/c.quantum))
			c.counts = append(c.counts, count)
		}
	}
	c.best, c.last = make([]float64, c.gpu+1), make([]int, c.gpu+1)
	return c
}

func gcd(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// The prices are found in rounds, of which each changes them less than the one
// before. With these figures they are within a tenth of a percent of the best.
const (
	rounds      = 2000
	firstChange = 1.0
	lastChange  = 0.001
)

// prices returns the price of a slice of each size, in GPUs. It adjusts them in rounds
// (multiplicative weights): fill one GPU in the most expensive way, and lower the prices of its
// content, since less of it is left to be cut. The best prices of all rounds are those with the
// most expensive demand while no GPU's content costs more than the GPU.
func (c *cutting) prices() []float64 {
	covered := make([]float64, len(c.sizes)) // how often each size was cut, in terms of its count
	prices := make([]float64, len(c.sizes))
	best := make([]float64, len(c.sizes))
	dearest, change := 0.0, firstChange
	for range rounds {
		total, least := 0.0, least(covered)
		for i, count := range c.counts {
			prices[i] = math.Exp(least-covered[i]) / count
			total += math.Exp(least - covered[i])
		}
		content, cut := c.fill(prices)
		gpu := content[c.gpu]
		if gpu == 0 {
			break
		}
		if total/gpu > dearest {
			dearest = total / gpu
			for i, price := range prices {
				best[i] = price / gpu
			}
		}
		c.cover(covered, cut, change)
		change *= math.Pow(lastChange/firstChange, 1.0/rounds)
	}
	return best
}

func least(values []float64) float64 {
	least := math.Inf(1)
	for _, v := range values {
		least = min(least, v)
	}
	return least
}

// cover counts what was cut, so that the largest share of a size is the change.
func (c *cutting) cover(covered []float64, cut []int, change float64) {
	most := 0.0
	for i, times := range cut {
		most = max(most, float64(times)/c.counts[i])
	}
	for i, times := range cut {
		covered[i] += change * float64(times) / c.counts[i] / most
	}
}

// fill finds the most expensive content for every amount of free memory, and how many slices of
// each size the content of a whole GPU has. The results are valid until the next call.
func (c *cutting) fill(prices []float64) (content []float64, cut []int) {
	const nothing, smaller = -1, -2
	for free := range c.best {
		c.best[free], c.last[free] = 0, nothing
		if free > 0 && c.best[free-1] > 0 {
			c.best[free], c.last[free] = c.best[free-1], smaller
		}
		for i, size := range c.sizes {
			if size <= free && c.best[free-size]+prices[i] > c.best[free] {
				c.best[free], c.last[free] = c.best[free-size]+prices[i], i
			}
		}
	}
	cut = make([]int, len(c.sizes))
	for free := c.gpu; c.last[free] != nothing; {
		if i := c.last[free]; i == smaller {
			free--
		} else {
			cut[i]++
			free -= c.sizes[i]
		}
	}
	return c.best, cut
}
