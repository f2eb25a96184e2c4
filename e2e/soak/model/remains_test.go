// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestLeaks(t *testing.T) {
	t.Parallel()
	begin := Remains{"mount": {"/a"}, "process": {"nomad", "shim", "shim"}}
	must.SliceEmpty(t, Leaks(begin, begin))
	must.SliceEmpty(t, Leaks(begin, Remains{"process": {"shim"}}))
	must.Eq(t, []Leak{
		{"container", "c"}, {"process", "shim"}, {"process", "wait"},
	}, Leaks(begin, Remains{"process": {"wait", "shim", "shim", "shim"}, "container": {"c"}, "mount": {"/a"}}))
}

func TestProcessUsesMoreThanAtItsBeginning(t *testing.T) {
	t.Parallel()
	begin, slack := Sample{FDs: 20, Threads: 10, RSSKiB: 1000}, Slack{FDs: 4, Threads: 5, RSSKiB: 500}
	must.SliceEmpty(t, Sample{FDs: 24, Threads: 15, RSSKiB: 1500}.Exceeds(begin, slack, "driver"))
	must.SliceEmpty(t, Sample{}.Exceeds(begin, slack, "driver"))
	must.Eq(t, []Leak{{"file descriptors", "driver: 25, 20 at the beginning"}},
		Sample{FDs: 25}.Exceeds(begin, slack, "driver"))
	must.Len(t, 2, Sample{Threads: 16, RSSKiB: 1501}.Exceeds(begin, slack, "driver"))
}

func TestTrends(t *testing.T) {
	t.Parallel()
	p := Process{Name: "driver", PID: 7}
	for minute := range 61 {
		p.Samples = append(p.Samples, Sample{At: noon.Add(time.Duration(minute) * time.Minute), FDs: 20 + minute, Threads: 9})
	}
	trends := p.Trends()
	must.Eq(t, time.Hour, trends.Over)
	must.Eq(t, 20, trends.FDs.First)
	must.Eq(t, 80, trends.FDs.Last)
	must.InDelta(t, 60, trends.FDs.PerHour, 1e-6)
	must.InDelta(t, 0, trends.Threads.PerHour, 1e-6)

	one := Process{Samples: p.Samples[:1]}.Trends()
	must.Zero(t, one.FDs.PerHour)
}
