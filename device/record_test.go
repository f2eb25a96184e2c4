// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// life plays days of a GPU: how long after each failure it is used again.
type life struct {
	record
	now time.Time
}

func (l *life) fails(weight int) { l.record = l.failed("fault", weight) }

// recovers returns after how many healthy seconds the GPU is used.
func (l *life) recovers() int {
	for second := range 10_000 {
		l.record = l.well(l.now, 30*time.Second)
		if l.fault == "" {
			return second
		}
		l.now = l.now.Add(time.Second)
	}
	return -1
}

func TestProbation(t *testing.T) {
	t.Parallel()
	l := &life{now: time.Unix(1, 0)}
	for n, want := range []int{0, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600} {
		l.fails(unreadable)
		must.Eq(t, want, l.recovers(), must.Sprintf("failure %d", n+1))
	}
	l.now = l.now.Add(forgiveAfter)
	l.record = l.well(l.now, 30*time.Second)
	l.fails(unreadable)
	must.Eq(t, 0, l.recovers(), must.Sprint("what is long ago is forgotten"))

	l = &life{now: time.Unix(1, 0)}
	l.fails(reported)
	must.Eq(t, 30, l.recovers(), must.Sprint("an Xid"))
}

func TestOneFailureCountsOnce(t *testing.T) {
	t.Parallel()
	l := &life{now: time.Unix(1, 0)}
	for range 100 { // it reports, cannot be read, is well for a moment, and again
		l.fails(reported)
		l.fails(unreadable)
		l.record = l.well(l.now, 30*time.Second)
	}
	must.Eq(t, 30, l.recovers())
}
