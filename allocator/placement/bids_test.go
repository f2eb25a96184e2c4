// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"testing"

	"github.com/shoenig/test/must"
)

// lost is the part of free memory that is misfit, in thousandths of a GPU.
func lost(counts map[int32]float64, free int32) float64 {
	t := &target{worth: []worth{newWorth(counts, 1000)}}
	return float64(t.misfit(gpu{free: free})) / one
}

func TestMisfit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		counts map[int32]float64
		lost   map[int32]float64 // by free memory
	}{
		{name: "nothing is known", counts: nil, lost: map[int32]float64{1000: 0, 0: 0}},
		{name: "halves", counts: map[int32]float64{500: 1}, lost: map[int32]float64{1000: 0, 500: 0, 499: 499, 750: 250}},
		{
			name:   "a third, well, and a half do not match",
			counts: map[int32]float64{500: 1, 330: 1},
			lost:   map[int32]float64{1000: 0, 500: 0, 660: -7, 170: 170, 670: 3},
		},
		{
			name:   "a complement that is rare is worth little",
			counts: map[int32]float64{800: 10, 200: 1},
			lost:   map[int32]float64{200: 200, 800: -200, 1000: 0},
		},
		{
			name:   "a complement that abounds takes all of what is left over",
			counts: map[int32]float64{800: 1, 200: 10},
			lost:   map[int32]float64{200: 0, 800: 0, 1000: 0},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for free, want := range test.lost {
				must.InDelta(t, want, lost(test.counts, free), 2, must.Sprint(free))
			}
		})
	}
}

// At the prices no content of a GPU is dearer than the GPU.
func TestPricesAreFair(t *testing.T) {
	t.Parallel()
	counts := map[int32]float64{810: 1078, 470: 750, 320: 328, 650: 253, 230: 140, 460: 128, 590: 75, 160: 74, 550: 72, 220: 62, 370: 47, 110: 24}
	c := newCutting(counts, 1000)
	prices := c.prices()
	content, _ := c.fill(prices)
	must.InDelta(t, 1, content[c.gpu], 1e-9)
	var demand, cost float64
	for i, price := range prices {
		demand += c.counts[i] * float64(c.sizes[i]) / float64(c.gpu)
		cost += c.counts[i] * price
	}
	must.Between(t, 0.88, demand/cost, 0.89, must.Sprint("of the GPUs' memory can be used at best"))
}
