// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// canary makes Nomad start one instance of a new version beside those that run.
func canary(job *api.Job) { job.Update = &api.UpdateStrategy{Canary: ptr(1)} }

// A canary does not get the units of running instances: it is planned beside them.
func TestCanaryOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			options := planner.Options{Policy: policy("best-fit"), Pin: pin, Shortlist: 4}
			n := nomadtest.New(t, nomadtest.Nodes(3, a10())...)
			job := newJob("green", 12, canary, count(2))
			must.Len(t, 2, run(n, plan(t, job, see(t, n, job), options)))

			changed := newJob("green", 13, canary, count(2))
			p := plan(t, changed, see(t, n, changed), options)
			must.Len(t, 1, p.Groups[0].Places)
			must.SliceEmpty(t, p.Groups[0].Short)
			must.Eq(t, 0, p.Groups[0].Replaces)
			started := run(n, p)
			must.Len(t, 1, started)
			must.True(t, planner.Compare(p, started)[0].AsPlanned)
		})
	}
}
