// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"time"
)

// Sample is what a process used at one moment.
type Sample struct {
	At      time.Time
	FDs     int
	Threads int
	RSSKiB  int
}

// Process has the samples of one process over time.
type Process struct {
	Name    string
	PID     int
	Samples []Sample
}

// Slack is how much more a process may use at its quiet end than at its quiet beginning:
// idle connections, threads that Go keeps, memory that it has not released.
type Slack struct{ FDs, Threads, RSSKiB int }

// Trend is the straight line through one figure of a process.
type Trend struct {
	First, Last int
	PerHour     float64
}

// Trends are those of all figures.
type Trends struct {
	Process string        `json:"process"`
	PID     int           `json:"pid"`
	Samples int           `json:"samples"`
	Over    time.Duration `json:"over"`
	FDs     Trend         `json:"fds"`
	Threads Trend         `json:"threads"`
	RSSKiB  Trend         `json:"rss_kib"`
}

// Trends returns the trends. The process must have a sample.
func (p Process) Trends() Trends {
	first, last := p.Samples[0], p.Samples[len(p.Samples)-1]
	return Trends{
		Process: p.Name, PID: p.PID, Samples: len(p.Samples), Over: last.At.Sub(first.At),
		FDs:     p.trend(func(s Sample) int { return s.FDs }),
		Threads: p.trend(func(s Sample) int { return s.Threads }),
		RSSKiB:  p.trend(func(s Sample) int { return s.RSSKiB }),
	}
}

func (p Process) trend(of func(Sample) int) Trend {
	first := p.Samples[0].At
	var x, y, xx, xy float64
	for _, s := range p.Samples {
		hours, value := s.At.Sub(first).Hours(), float64(of(s))
		x, y, xx, xy = x+hours, y+value, xx+hours*hours, xy+hours*value
	}
	t := Trend{First: of(p.Samples[0]), Last: of(p.Samples[len(p.Samples)-1])}
	n := float64(len(p.Samples))
	if spread := n*xx - x*x; spread > 0 {
		t.PerHour = (n*xy - x*y) / spread
	}
	return t
}

// Exceeds compares the quiet end of a process with a quiet beginning: its own, or that
// of the process which it replaced.
func (s Sample) Exceeds(begin Sample, slack Slack, process string) (leaks []Leak) {
	for _, figure := range []struct {
		name             string
		begin, end, most int
	}{
		{"file descriptors", begin.FDs, s.FDs, slack.FDs},
		{"threads", begin.Threads, s.Threads, slack.Threads},
		{"KiB of memory", begin.RSSKiB, s.RSSKiB, slack.RSSKiB},
	} {
		if figure.end > figure.begin+figure.most {
			leaks = append(leaks, Leak{Kind: figure.name, Item: fmt.Sprintf(
				"%s: %d, %d at the beginning", process, figure.end, figure.begin)})
		}
	}
	return leaks
}
