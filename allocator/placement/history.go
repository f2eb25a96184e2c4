// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// History learns what future tasks will ask for from past requests. A request of one
// half-life ago counts half.
type History struct {
	halfLife time.Duration
	epoch    time.Time // when a task counts 1
	counts   map[string]*Class
	key      []byte
}

// NewHistory returns a History that has seen nothing.
func NewHistory(halfLife time.Duration) *History {
	return &History{halfLife: halfLife, counts: map[string]*Class{}}
}

// Observe counts a request made at that time, whether or not it fitted. The order of calls
// does not matter.
func (h *History) Observe(r Request, at time.Time) {
	if len(h.counts) == 0 {
		h.epoch = at
	}
	weight := h.weight(at)
	if weight > 1e100 {
		h.moveEpoch(at)
		weight = 1
	}
	h.key = r.appendKey(h.key[:0])
	c, known := h.counts[string(h.key)]
	if !known {
		r.Fits = nil
		r.Asks = slices.Clone(r.Asks)
		for i := range r.Asks {
			r.Asks[i].Fits = nil
		}
		c = &Class{Request: r}
		h.counts[string(h.key)] = c
	}
	c.Weight += weight
}

// Classes returns the observed requests, the most frequent first. The weights sum up to the
// number of tasks after decay.
func (h *History) Classes() []Class {
	keys := slices.Sorted(maps.Keys(h.counts))
	classes := make([]Class, len(keys))
	for i, key := range keys {
		classes[i] = *h.counts[key]
	}
	slices.SortStableFunc(classes, func(a, b Class) int { return cmp.Compare(b.Weight, a.Weight) })
	return classes
}

// weight is what a task of that time counts: the later, the more.
func (h *History) weight(at time.Time) float64 {
	return math.Exp2(at.Sub(h.epoch).Seconds() / h.halfLife.Seconds())
}

// moveEpoch keeps the weights small, and drops negligible ones.
func (h *History) moveEpoch(to time.Time) {
	scale := h.weight(to)
	h.epoch = to
	for key, c := range h.counts {
		if c.Weight /= scale; c.Weight < 1e-9 {
			delete(h.counts, key)
		}
	}
}
