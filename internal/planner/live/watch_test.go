// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// watch is a Watch that runs.
type watch struct {
	t       *testing.T
	reports chan live.Replanned
	trouble chan error
	ended   chan error
	stop    context.CancelFunc
	once    sync.Once
}

// patience bounds what a test waits for; nothing takes that long.
const patience = 20 * time.Second

// watch starts one. The interval is so long that only events count.
func (w *world) watch(t *testing.T, options planner.Options, threshold int) *watch {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	running := &watch{t: t, reports: make(chan live.Replanned, 100), trouble: make(chan error, 100), ended: make(chan error, 1), stop: stop}
	how := live.Watching{
		Space: "*", Threshold: threshold, Settle: 5 * time.Millisecond, Every: time.Hour,
		Report: func(all []live.Replanned) {
			for _, one := range all {
				running.reports <- one
			}
		},
		Trouble: func(err error) { running.trouble <- err },
	}
	go func() { running.ended <- w.Watch(ctx, options, how) }()
	t.Cleanup(running.end)
	return running
}

// end ends the watch and checks its result. A second call does nothing.
func (w *watch) end() {
	w.once.Do(func() {
		w.stop()
		select {
		case err := <-w.ended:
			must.NoError(w.t, err)
		case <-time.After(patience):
			w.t.Error("Watch has not ended with its context")
		}
	})
}

func (w *watch) next() live.Replanned {
	w.t.Helper()
	select {
	case one := <-w.reports:
		return one
	case err := <-w.ended:
		must.NoError(w.t, err)
		w.t.Fatal("Watch has ended")
	case <-time.After(patience):
		w.t.Fatal("nothing is reported")
	}
	return live.Replanned{}
}

// until waits for a condition that no report shows.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		must.True(t, time.Now().Before(deadline), must.Sprint("condition is not met"))
		time.Sleep(time.Millisecond)
	}
}

// scale does what an autoscaler does, and emits the event of the blocked evaluation.
func (w *world) scale(t *testing.T, id string, count int) {
	t.Helper()
	var blocked *structs.Evaluation
	w.nomad.Do(func(n *nomadtest.Nomad) {
		scaled := nomadtest.Convert[*api.Job](t, n.Job(id))
		scaled.TaskGroups[0].Count = &count
		n.Register(scaled)
		blocked = n.CreateEvals[len(n.CreateEvals)-1]
	})
	must.Eq(t, structs.EvalStatusBlocked, blocked.Status)
	w.nomad.Emit(api.TopicEvaluation, "EvaluationUpdated", blocked.ID, map[string]any{"Evaluation": blocked})
}

// A job that is scaled past its list of nodes gets a longer one, and nothing restarts.
func TestWatchHealsAfterScaling(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(3, gpu())...)
	one := options(planner.Shortlist)
	one.Shortlist = 1
	_, err := w.Run(t.Context(), job("web", 20, 1), one)
	must.NoError(t, err)
	first := w.allocs("web")
	watching := w.watch(t, one, 1)
	w.scale(t, "web", 2)
	report := watching.next()
	must.Eq(t, "", report.Error)
	must.Eq(t, "web", report.Job)
	must.True(t, report.Changed)
	must.StrContains(t, report.Why[0], "1 instance waits")
	must.Len(t, 2, w.allocs("web"))
	must.SliceContains(t, w.allocs("web"), first[0])
}

// eligible sets whether nodes accept tasks, and emits the event.
func (w *world) eligible(yes bool, nodes ...string) {
	w.nomad.Do(func(n *nomadtest.Nomad) {
		for _, node := range nodes {
			n.SetEligible(node, yes)
		}
	})
	w.nomad.Emit(api.TopicNode, "NodeEligibility", nodes[0], map[string]any{"Node": map[string]any{"ID": nodes[0]}})
}

// shortlisted runs a job with a list of six of twelve nodes, and returns the list.
func (w *world) shortlisted(t *testing.T) (planner.Options, []string) {
	t.Helper()
	six := options(planner.Shortlist)
	six.Shortlist = 6
	report, err := w.Run(t.Context(), job("web", 3, 1), six)
	must.NoError(t, err)
	return six, report.Plan.Groups[0].Nodes
}

// Nodes of a list that are lost are replaced, also if the event stream was interrupted
// meanwhile. It is resumed after the last event.
func TestWatchHealsAfterLostNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(12, gpu())...)
	six, nodes := w.shortlisted(t)
	watching := w.watch(t, six, 4)
	until(t, func() bool { return len(w.nomad.Streams()) == 1 })
	w.eligible(false, nodes[1:5]...)
	report := watching.next()
	must.True(t, report.Changed)
	must.StrContains(t, report.Why[0], "2 of 6 nodes")
	nodes = report.Report.Plan.Groups[0].Nodes
	until(t, func() bool { return len(watching.reports) == 0 })

	w.nomad.Do(func(n *nomadtest.Nomad) { // without an event
		for _, node := range nodes[1:5] {
			n.SetEligible(node, false)
		}
	})
	w.nomad.CloseClientConnections()
	must.ErrorContains(t, <-watching.trouble, "event stream")
	must.True(t, watching.next().Changed)
	streams := w.nomad.Streams()
	must.Greater(t, streams[0], streams[len(streams)-1])
}

// A job for which there are no better pins is reported once, and not submitted again and
// again.
func TestWatchOfWhatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	_, err := w.Run(t.Context(), job("web", 20, 2), options(planner.Shortlist))
	must.NoError(t, err)
	var version uint64
	w.nomad.Do(func(n *nomadtest.Nomad) { version = n.Job("web").Version })
	watching := w.watch(t, options(planner.Shortlist), 1)
	must.False(t, watching.next().Changed)
	node := nomadtest.NodeID(0)
	for range 3 {
		w.eligible(true, node)
	}
	// Another job is reported after these events would have been.
	other := job("other", 20, 1)
	w.nomad.Do(func(n *nomadtest.Nomad) {
		other.TaskGroups[0].Meta = map[string]string{planner.MetaPlanned: "shortlist"}
		n.Register(other)
	})
	w.nomad.Emit(api.TopicJob, "JobRegistered", "other", map[string]any{"Job": map[string]any{"Namespace": "default"}})
	must.Eq(t, "other", watching.next().Job)
	w.nomad.Do(func(n *nomadtest.Nomad) { must.Eq(t, version, n.Job("web").Version) })
}

// A watch fails if its first pass fails; later it retries.
func TestWatchErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(12, gpu())...)
	how := live.Watching{Space: "*", Settle: time.Millisecond, Every: time.Hour}
	w.store.Fail(allocator.ErrUnavailable)
	must.ErrorIs(t, w.Watch(t.Context(), options(planner.Shortlist), how), allocator.ErrUnavailable)
	w.store.Fail(nil)

	six, nodes := w.shortlisted(t)
	watching := w.watch(t, six, 4)
	until(t, func() bool { return len(w.nomad.Streams()) == 1 })
	w.store.Fail(allocator.ErrUnavailable)
	w.eligible(false, nodes[1:5]...)
	must.ErrorIs(t, <-watching.trouble, allocator.ErrUnavailable)
	w.store.Fail(nil)
	for !watching.next().Changed { // it may have failed halfway through the job, and retries
	}
	watching.end()

	w.nomad.DenyStreams()
	err := w.Watch(t.Context(), six, how)
	must.ErrorIs(t, err, live.ErrNomad)
	must.ErrorContains(t, err, "node:read")
	w.nomad.Close()
	must.ErrorIs(t, w.Watch(t.Context(), six, how), live.ErrNomad)
}
