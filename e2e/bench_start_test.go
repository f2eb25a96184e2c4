// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e && bench

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// starter is one kind of task whose start is measured.
type starter struct {
	name   string
	driver string
	units  uint64
	limit  float64 // of the ratio to the first one; 0: it is the first one
	times  []time.Duration
}

// From the job's submission until its task runs, by Nomad's own clock readings.
func TestBench_start(t *testing.T) {
	starters := []*starter{
		{name: "docker", driver: builtIn},
		{name: "gpu-docker", driver: ours, limit: 1.05},
		{name: "gpu-docker, with a slice", driver: ours, units: 4, limit: 1.10},
	}
	const warmUp = 2 // rounds: an engine's first containers are slow
	count := rounds(25, 5)
	for round := range warmUp + count {
		for turn := range starters { // each comes first, second and last in turn
			s := starters[(round+turn)%len(starters)]
			if took := shared.timeStart(t, fmt.Sprintf("bench-start-%d-%d", round, turn), s); round >= warmUp {
				s.times = append(s.times, took)
			}
		}
	}
	r := newReport(t, fmt.Sprintf("Start of a task, from its job's submission until it runs: %d rounds", count),
		"", "median", "p90", "ratio", "at most")
	for _, s := range starters {
		cells := []string{s.name, milliseconds(quantile(s.times, .5)), milliseconds(quantile(s.times, .9))}
		if s.limit > 0 {
			cells = append(cells, r.atMost(ratio(quantile(s.times, .5), quantile(starters[0].times, .5)), s.limit)...)
		}
		r.row(cells...)
	}
}

// timeStart starts one task and ends it.
func (c *cluster) timeStart(t *testing.T, name string, s *starter) time.Duration {
	t.Helper()
	alloc := c.start(t, gpuJob(name, s.units, byDriver(s.driver)))
	took := alloc.TaskStates[name].StartedAt.Sub(time.Unix(0, *alloc.Job.SubmitTime))
	must.Positive(t, took)
	c.endAll(t, name)
	return took
}
