// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Nomad and a table.
type world struct {
	*live.Site
	t     *testing.T
	nomad *nomadtest.Server
	store *storetest.Memory
	table *allocator.Table
}

func newWorld(t *testing.T, nodes ...*structs.Node) *world {
	w := &world{t: t, nomad: nomadtest.Serve(t, nodes...), store: storetest.NewMemory()}
	w.table = allocator.NewTable(w.store)
	w.Site = live.New(w.nomad.Client(t), w.table)
	return w
}

// Run and Plan take jobs that a program has made.
func (w *world) Run(ctx context.Context, job *api.Job, options planner.Options) (*live.Report, error) {
	return w.Site.Run(ctx, document(w.t, job), options, live.Submission{})
}

func (w *world) Plan(ctx context.Context, job *api.Job, options planner.Options) (*planner.Plan, error) {
	return w.Site.Plan(ctx, document(w.t, job), options)
}

func document(t *testing.T, job *api.Job) *planner.Document {
	t.Helper()
	data, err := json.Marshal(job)
	must.NoError(t, err)
	d, err := planner.ReadJob(data)
	must.NoError(t, err)
	return d
}

func gpu() nomadtest.GPU { return nomadtest.GPU{Model: "NVIDIA A10", Units: 22, UnitMiB: 1024} }

func job(id string, units, count int) *api.Job {
	task := api.NewTask("main", "gpu-docker")
	amount := uint64(units)
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: allocator.Device, Count: &amount}}}
	return api.NewServiceJob(id, id, "global", 50).AddTaskGroup(api.NewTaskGroup("group", count).AddTask(task))
}

func options(pin planner.Pin) planner.Options {
	policy, err := placement.PolicyNamed("best-fit")
	if err != nil {
		panic(err)
	}
	return planner.Options{Policy: policy, Pin: pin}
}

// reserved counts the reserved units.
func (w *world) reserved(t *testing.T) int {
	t.Helper()
	snapshot, err := w.table.Snapshot(t.Context())
	must.NoError(t, err)
	units := 0
	for _, g := range snapshot.GPUs {
		for _, claim := range g.Claims() {
			units += len(claim.Units)
		}
	}
	return units
}

// allocs returns the IDs of a job's allocations.
func (w *world) allocs(job string) (ids []string) {
	w.nomad.Do(func(n *nomadtest.Nomad) {
		for _, alloc := range n.Allocs() {
			if alloc.JobID == job {
				ids = append(ids, alloc.ID)
			}
		}
	})
	return ids
}

func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(4, gpu(), gpu())...)
	report, err := w.Run(t.Context(), job("web", 5, 3), options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, 1, report.Rounds)
	must.Eq(t, "complete", report.Status)
	must.Len(t, 3, report.Outcomes)
	must.True(t, report.AsPlanned())
	must.Eq(t, 0, w.reserved(t)) // Nomad has booked the units

	before := w.allocs("web")
	report, err = w.Run(t.Context(), job("web", 5, 3), options(planner.Shortlist))
	must.NoError(t, err)
	must.True(t, report.Plan.Groups[0].Kept)
	must.SliceEmpty(t, report.Outcomes)
	must.SliceContainsAll(t, before, w.allocs("web"))
}

func TestJobWithoutAsksIsSubmitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	plain := job("plain", 1, 1)
	plain.TaskGroups[0].Tasks[0].Resources.Devices = nil
	report, err := w.Run(t.Context(), plain, options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, "complete", report.Status)
	must.SliceEmpty(t, report.Plan.Groups)
	must.Len(t, 1, report.Outcomes)
	must.Eq(t, w.allocs("plain")[0], report.Outcomes[0].Alloc)
	must.SliceEmpty(t, report.Outcomes[0].GPUs)
	must.True(t, report.AsPlanned())
}

// once calls do before the first registration only.
func once(do func(*nomadtest.Nomad)) func(*nomadtest.Nomad) {
	done := false
	return func(n *nomadtest.Nomad) {
		if !done {
			done = true
			do(n)
		}
	}
}

// Another task takes the planned GPU at the last moment.
func TestLostRaceForTheGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	mine := job("mine", 20, 1)
	plan, err := w.Plan(t.Context(), mine, options(planner.Hard))
	must.NoError(t, err)
	w.nomad.OnRegister = once(func(n *nomadtest.Nomad) {
		thief := job("thief", 20, 1)
		thief.TaskGroups[0].Tasks[0].Resources.Devices[0].Name += "/" + plan.Groups[0].Places[0].Slices[0].GPU
		n.Register(thief)
	})
	report, err := w.Run(t.Context(), mine, options(planner.Hard))
	must.NoError(t, err)
	must.Eq(t, 2, report.Rounds)
	must.True(t, report.AsPlanned())
	must.Len(t, 1, report.Outcomes)
	must.NotEq(t, plan.Groups[0].Places[0].Node, report.Outcomes[0].Node)
}

// Another version of the job is submitted at the last moment.
func TestLostRaceForTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	w.nomad.OnRegister = once(func(n *nomadtest.Nomad) { n.Register(job("web", 3, 1)) })
	report, err := w.Run(t.Context(), job("web", 3, 2), options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, 2, report.Rounds)
	must.Len(t, 2, w.allocs("web"))
}

// racing is a table in which another planner is faster, once.
type racing struct {
	live.Table
	lost bool
}

func (r *racing) Reserve(ctx context.Context, owner allocator.Owner, ttl time.Duration, requests []allocator.UnitRequest) error {
	if !r.lost {
		r.lost = true
		other := owner
		other.Job, other.Alloc = "other", "plan-other"
		taken := requests[0]
		taken.Count = taken.TotalUnits
		if err := r.Table.Reserve(ctx, other, ttl, []allocator.UnitRequest{taken}); err != nil {
			return err
		}
	}
	return r.Table.Reserve(ctx, owner, ttl, requests)
}

func TestLostRaceForTheReservation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	site := live.New(w.nomad.Client(t), &racing{Table: w.table})
	report, err := site.Run(t.Context(), document(t, job("web", 3, 1)), options(planner.Shortlist), live.Submission{})
	must.NoError(t, err)
	must.Eq(t, 2, report.Rounds)
	must.True(t, report.AsPlanned())
	must.Eq(t, 22, w.reserved(t)) // the other's
}

// Instances that fit nowhere wait in Nomad, not confined to nodes.
func TestRunOfWhatFitsNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	report, err := w.Run(t.Context(), job("large", 20, 3), options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, 1, report.Plan.Missing())
	must.True(t, report.AsPlanned())
	must.Len(t, 2, w.allocs("large"))
	must.NotEq(t, "", report.Failures["group"])
	must.NotEq(t, "", report.Blocked)
}

// The webhook's way: the plan is reserved, and planning again adds nothing.
func TestReserve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	for range 3 {
		plan, err := w.Reserve(t.Context(), document(t, job("web", 5, 2)), options(planner.Shortlist))
		must.NoError(t, err)
		must.Eq(t, 0, plan.Missing())
		must.Eq(t, 10, w.reserved(t))
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	bad := job("bad", 1, 1)
	bad.Meta = map[string]string{planner.MetaProfile: "none"}
	_, err := w.Plan(t.Context(), bad, options(planner.Soft))
	must.ErrorIs(t, err, planner.ErrJob)

	w.store.Fail(allocator.ErrUnavailable)
	_, err = w.Run(t.Context(), job("web", 1, 1), options(planner.Soft))
	must.ErrorIs(t, err, allocator.ErrUnavailable)
	must.SliceEmpty(t, w.allocs("web"))

	w.store.Fail(nil)
	w.nomad.Close()
	_, err = w.Plan(t.Context(), job("web", 1, 1), options(planner.Soft))
	must.ErrorIs(t, err, live.ErrNomad)
}

// A profile is read when the job is planned.
func TestProfile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	must.NoError(t, w.table.PutProfile(t.Context(), "llama", allocator.Profile{BaseMiB: 5000}))
	web := job("web", 1, 1)
	web.Meta = map[string]string{planner.MetaProfile: "llama"}
	report, err := w.Run(t.Context(), web, options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, 5, report.Plan.Groups[0].Places[0].Slices[0].Units)
}

// A list that has become short is refreshed, and nothing restarts.
func TestReplanOfAShortList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(12, gpu())...)
	list := options(planner.Shortlist)
	list.Shortlist = 6
	report, err := w.Run(t.Context(), job("web", 3, 2), list)
	must.NoError(t, err)
	nodes := report.Plan.Groups[0].Nodes
	must.Len(t, 6, nodes)
	before := w.allocs("web")

	all, err := w.Replan(t.Context(), "*", nil, list, 4, false)
	must.NoError(t, err)
	must.SliceEmpty(t, all[0].Why)

	w.nomad.Do(func(n *nomadtest.Nomad) {
		for _, node := range nodes[1:5] {
			n.SetEligible(node, false)
		}
	})
	dry, err := w.Replan(t.Context(), "*", []string{"web"}, list, 4, true)
	must.NoError(t, err)
	must.True(t, dry[0].Changed)
	all, err = w.Replan(t.Context(), "*", nil, list, 4, false)
	must.NoError(t, err)
	must.StrContains(t, all[0].Why[0], "2 of 6 nodes")
	must.True(t, all[0].Changed)
	must.Eq(t, before, w.allocs("web"))
	now := all[0].Report.Plan.Groups[0].Nodes
	must.SliceContains(t, now, nodes[0])
	must.Greater(t, 4, len(now))
	must.False(t, strings.Contains(strings.Join(now, ","), nodes[3]))

	all, err = w.Replan(t.Context(), "*", nil, list, 4, false)
	must.NoError(t, err)
	must.SliceEmpty(t, all[0].Why)
}

// A job that lost its planned node before it could start is planned again, in
// everything.
func TestReplanOfWhatWaits(t *testing.T) {
	t.Parallel()
	for _, pin := range []planner.Pin{planner.Hard, planner.Shortlist} {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nomadtest.Nodes(2, gpu())...)
			one := options(pin)
			one.Shortlist = 1
			plan, err := w.Plan(t.Context(), job("web", 3, 1), one)
			must.NoError(t, err)
			w.nomad.Do(func(n *nomadtest.Nomad) {
				n.SetEligible(plan.Groups[0].Places[0].Node, false)
				n.Register(plan.Job)
			})
			must.SliceEmpty(t, w.allocs("web"))
			all, err := w.Replan(t.Context(), "*", nil, options(planner.Soft), 1, false)
			must.NoError(t, err)
			must.StrContains(t, all[0].Why[0], "1 instance waits")
			must.True(t, all[0].Report.AsPlanned())
			must.Eq(t, pin, all[0].Report.Plan.Groups[0].Pin) // it keeps the kind
			must.Len(t, 1, w.allocs("web"))
		})
	}
}

// A version that is submitted while a job is planned again is not undone.
func TestReplanLosesToAnotherVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(12, gpu())...)
	list := options(planner.Shortlist)
	list.Shortlist = 6
	_, err := w.Run(t.Context(), job("web", 3, 2), list)
	must.NoError(t, err)
	w.nomad.OnRegister = once(func(n *nomadtest.Nomad) { n.Register(job("web", 3, 5)) })
	all, err := w.Replan(t.Context(), "*", nil, options(planner.Shortlist), 8, false)
	must.NoError(t, err)
	must.StrContains(t, all[0].Error, "another version of the job")
	must.Len(t, 5, w.allocs("web"))
}

// Of a group that runs only the list of nodes changes when one more instance
// waits.
func TestReplanOfOneMoreThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	one := options(planner.Shortlist)
	one.Shortlist = 1
	report, err := w.Run(t.Context(), job("web", 20, 1), one)
	must.NoError(t, err)
	first := w.allocs("web")
	two := 2
	report.Plan.Job.TaskGroups[0].Count = &two
	w.nomad.Do(func(n *nomadtest.Nomad) { n.Register(report.Plan.Job) })
	must.Eq(t, first, w.allocs("web"))

	all, err := w.Replan(t.Context(), "*", nil, one, 1, false)
	must.NoError(t, err)
	must.True(t, all[0].Report.AsPlanned())
	must.Len(t, 2, w.allocs("web"))
	must.SliceContains(t, w.allocs("web"), first[0])
	must.Len(t, 2, all[0].Report.Plan.Groups[0].Nodes)
}

// Jobs without pins are left unchanged.
func TestReplanOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	w.nomad.Do(func(n *nomadtest.Nomad) { n.Register(job("unplanned", 3, 1)) })
	all, err := w.Replan(t.Context(), "*", nil, options(planner.Shortlist), 4, false)
	must.NoError(t, err)
	must.SliceEmpty(t, all)
}

// whole is a job that asks for a whole GPU.
func whole(id string) *api.Job {
	j := job(id, 1, 1)
	j.Meta = map[string]string{planner.MetaAmount: "whole"}
	return j
}

// A job that fitted nowhere waits for a GPU of its planned size, and is
// free to take one of another size when it is planned again. Running tasks keep running.
func TestReplanOfWhatFittedNowhere(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			small, large := gpu(), gpu()
			large.Units = 40
			w := newWorld(t, nomadtest.Node(0, small), nomadtest.Node(1, small), nomadtest.Node(2, large), nomadtest.Node(3, large))
			neighbour := job("neighbour", 1, 4)
			neighbour.TaskGroups[0].Constrain(&api.Constraint{Operand: api.ConstraintDistinctHosts})
			w.nomad.Do(func(n *nomadtest.Nomad) { n.Register(neighbour) })

			mixed := whole("mixed")
			mixed.AddTaskGroup(job("", 2, 1).TaskGroups[0])
			runs := "runs"
			mixed.TaskGroups[1].Name = &runs
			mixed.TaskGroups[1].Tasks[0].Meta = map[string]string{planner.MetaAmount: ""}
			report, err := w.Run(t.Context(), mixed, options(pin))
			must.NoError(t, err)
			must.Eq(t, 1, report.Plan.Missing())
			before := w.allocs("mixed")
			must.Len(t, 1, before)
			all, err := w.Replan(t.Context(), "*", nil, options(planner.Soft), 1, false)
			must.NoError(t, err)
			must.Len(t, 1, all)
			must.False(t, all[0].Changed)
			must.Eq(t, 1, all[0].Report.Plan.Missing())

			// The GPU of the other size becomes free.
			bound := *report.Plan.Job.TaskGroups[0].Tasks[0].Resources.Devices[0].Count
			others := map[uint64][]string{22: {nomadtest.UUID(2, 0), nomadtest.UUID(3, 0)}, 40: {nomadtest.UUID(0, 0), nomadtest.UUID(1, 0)}}[bound]
			other := others[0]
			if other == report.Outcomes[0].GPUs[0] { // where the running group is
				other = others[1]
			}
			w.nomad.Do(func(n *nomadtest.Nomad) { n.FinishOn(other, "mixed") })
			all, err = w.Replan(t.Context(), "*", []string{"mixed"}, options(planner.Soft), 1, false)
			must.NoError(t, err)
			must.Eq(t, "", all[0].Error)
			must.True(t, all[0].Changed)
			must.True(t, all[0].Report.AsPlanned())
			must.Eq(t, pin, all[0].Report.Plan.Groups[0].Pin) // the requested one
			must.Len(t, 1, all[0].Report.Outcomes)
			must.Eq(t, []string{other}, all[0].Report.Outcomes[0].GPUs)
			must.Len(t, 2, w.allocs("mixed"))
			must.SliceContains(t, w.allocs("mixed"), before[0])
		})
	}
}

// A profile that has changed since restarts nothing when jobs are planned again.
func TestReplanAfterAChangedProfile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Nodes(2, gpu())...)
	must.NoError(t, w.table.PutProfile(t.Context(), "llama", allocator.Profile{BaseMiB: 5000}))
	web := job("web", 1, 1)
	web.Meta = map[string]string{planner.MetaProfile: "llama"}
	_, err := w.Run(t.Context(), web, options(planner.Shortlist))
	must.NoError(t, err)
	before := w.allocs("web")
	must.NoError(t, w.table.PutProfile(t.Context(), "llama", allocator.Profile{BaseMiB: 9000}))
	_, err = w.Replan(t.Context(), "*", nil, options(planner.Shortlist), 4, false)
	must.NoError(t, err)
	must.Eq(t, before, w.allocs("web"))
}

func TestReplanErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	unplanned, everywhere := job("unplanned", 3, 1), job("everywhere", 1, 1)
	everywhere.Type = &[]string{api.JobTypeSystem}[0]
	w.nomad.Do(func(n *nomadtest.Nomad) { n.Register(unplanned) })
	_, err := w.Run(t.Context(), everywhere, options(planner.Shortlist))
	must.NoError(t, err)
	replan := func(only ...string) ([]live.Replanned, error) {
		return w.Replan(t.Context(), "*", only, options(planner.Shortlist), 4, false)
	}
	_, err = replan("unplanned", "nonesuch")
	must.ErrorIs(t, err, live.ErrNoJob)
	must.ErrorContains(t, err, `"nonesuch"`)
	all, err := replan()
	must.NoError(t, err)
	must.SliceEmpty(t, all)
	all, err = replan("unplanned", "everywhere")
	must.NoError(t, err)
	must.StrContains(t, all[0].Error, "runs on every node")
	must.StrContains(t, all[1].Error, "it was never planned")

	w.store.Fail(allocator.ErrUnavailable)
	_, err = replan()
	must.ErrorIs(t, err, allocator.ErrUnavailable)
}

// A job that is started later is submitted, and nothing is reserved for it.
func TestRunOfATemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nomadtest.Node(0, gpu()))
	daily := job("daily", 3, 1)
	daily.AddPeriodicConfig(&api.PeriodicConfig{Spec: &[]string{"@daily"}[0]})
	daily.Type = &[]string{api.JobTypeBatch}[0]
	report, err := w.Run(t.Context(), daily, options(planner.Shortlist))
	must.NoError(t, err)
	must.Eq(t, "", report.Evaluation)
	must.SliceEmpty(t, report.Outcomes)
	must.Eq(t, 0, w.reserved(t))
	w.nomad.Do(func(n *nomadtest.Nomad) { must.Len(t, 1, n.Started(n.Launch("daily"))) })
}
