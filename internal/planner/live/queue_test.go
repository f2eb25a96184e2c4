// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live_test

import (
	"net/http"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

const pool = "batch"

// queuedWorld is a world with nodes in a pool, and maybe a batch queue.
func queuedWorld(t *testing.T, queue string) *world {
	nodes := nomadtest.Nodes(3, gpu())
	for _, n := range nodes {
		n.NodePool = pool
	}
	w := newWorld(t, nodes...)
	if queue != "" {
		w.nomad.SetQueue(pool, queue)
	}
	return w
}

func batchJob(id string) *api.Job {
	j := job(id, 5, 1)
	kind, name := api.JobTypeBatch, pool
	j.Type, j.NodePool = &kind, &name
	return j
}

// run reports the position of a queued job instead of waiting for its turn. No reservation
// is left to expire.
func TestRunInABatchQueue(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"fifo", "dynamic_priority"} {
		w := queuedWorld(t, kind)
		for position, id := range []string{"first", "second"} {
			report, err := w.Run(t.Context(), batchJob(id), options(planner.Shortlist))
			must.NoError(t, err)
			must.Eq(t, &live.Queued{Pool: pool, Type: kind, Position: position + 1}, report.Queue)
			must.Eq(t, kind, report.Plan.Queue)
			must.Eq(t, "pending", report.Status)
			must.Eq(t, 1, report.Rounds)
			must.True(t, report.AsPlanned())
			must.Eq(t, 0, w.reserved(t))
		}
		must.SliceEmpty(t, w.allocs("first"))
		w.nomad.Next(pool)
		must.Len(t, 1, w.allocs("first"))
	}
}

// The webhook reserves nothing for a job that will wait.
func TestReserveInABatchQueue(t *testing.T) {
	t.Parallel()
	w := queuedWorld(t, "fifo")
	plan, err := w.Reserve(t.Context(), document(t, batchJob("train")), options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, "fifo", plan.Queue)
	must.Eq(t, 0, w.reserved(t))
}

// A new version would lose its place in the queue.
func TestReplanLeavesTheQueueAlone(t *testing.T) {
	t.Parallel()
	w := queuedWorld(t, "fifo")
	_, err := w.Run(t.Context(), batchJob("train"), options(planner.Shortlist))
	must.NoError(t, err)
	before := string(w.nomad.Stored("train"))
	all, err := w.Replan(t.Context(), "*", nil, options(planner.Shortlist), planner.DefaultThreshold, false)
	must.NoError(t, err)
	must.SliceEmpty(t, all)
	all, err = w.Replan(t.Context(), "*", []string{"train"}, options(planner.Shortlist), planner.DefaultThreshold, false)
	must.NoError(t, err)
	must.StrContains(t, all[0].Error, "batch queue of node pool batch")
	must.Eq(t, before, string(w.nomad.Stored("train")))
}

// Without a queue, on a Nomad without queues, and where the token may not read them, nothing
// changes.
func TestPoolWithoutAQueue(t *testing.T) {
	t.Parallel()
	unknown, other, forbidden := queuedWorld(t, ""), queuedWorld(t, ""), queuedWorld(t, "fifo")
	other.nomad.SetQueue("other", "fifo")
	forbidden.nomad.Refuse("/v1/queue/jobs", http.StatusForbidden)
	for _, w := range []*world{unknown, other} {
		report, err := w.Run(t.Context(), batchJob("train"), options(planner.Shortlist))
		must.NoError(t, err)
		must.Nil(t, report.Queue)
		must.Eq(t, planner.Shortlist, report.Plan.Groups[0].Pin)
		must.Len(t, 1, report.Outcomes)
	}
	plan, err := forbidden.Plan(t.Context(), batchJob("train"), options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, "", plan.Queue)
	forbidden.nomad.Refuse("/v1/queue/jobs", http.StatusInternalServerError)
	_, err = forbidden.Plan(t.Context(), batchJob("train"), options(planner.Shortlist))
	must.ErrorIs(t, err, live.ErrNomad)
}

// A list is limited to the nodes that Nomad scores, if the token may read that setting.
func TestNodeLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(6, gpu())...)
	w.nomad.Limit = 4
	plan, err := w.Plan(t.Context(), job("web", 5, 1), options(planner.Shortlist))
	must.NoError(t, err)
	must.Len(t, 4, plan.Groups[0].Nodes)
	w.nomad.Refuse("/v1/operator/scheduler/configuration", http.StatusForbidden)
	plan, err = w.Plan(t.Context(), job("web", 5, 1), options(planner.Shortlist))
	must.NoError(t, err)
	must.Len(t, 6, plan.Groups[0].Nodes)
}
