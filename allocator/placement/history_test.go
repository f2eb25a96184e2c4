// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	h := placement.NewHistory(time.Hour)
	for range 4 {
		h.Observe(share(8), start)
	}
	h.Observe(share(4), start.Add(time.Hour))
	h.Observe(share(4), start.Add(3*time.Hour))

	classes := h.Classes()
	must.Len(t, 2, classes)
	must.Eq(t, 4, classes[0].Request.Asks[0].Units)
	must.InDelta(t, 2.5, classes[0].Weight/classes[1].Weight, 1e-9, must.Sprint("(2 + 8) to 4"))
}

// Weights grow with time; a history that is kept for long must not overflow.
func TestHistoryIsKeptSmall(t *testing.T) {
	t.Parallel()
	h := placement.NewHistory(time.Minute)
	start := time.Unix(0, 0)
	h.Observe(share(8), start)
	for i := range 10_000 {
		h.Observe(share(4), start.Add(time.Duration(i)*time.Minute))
	}
	classes := h.Classes()
	must.Len(t, 1, classes, must.Sprint("what is long gone is forgotten"))
	must.Eq(t, 4, classes[0].Request.Asks[0].Units)
}

// Requests that differ in conditions only are one kind: those cannot be foreseen.
func TestHistoryForgetsConditions(t *testing.T) {
	t.Parallel()
	r := share(8)
	r.Fits = func(*placement.Node) string { return "" }
	h := placement.NewHistory(time.Hour)
	h.Observe(r, time.Unix(0, 0))
	h.Observe(share(8), time.Unix(0, 0))
	must.Len(t, 1, h.Classes())
	must.Nil(t, h.Classes()[0].Request.Fits)
}
