package planner_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
)

// nomad is Nomad's real scheduler over a state of its own.
type nomad struct {
	*scheduler.Harness
	nodes []*structs.Node
}

func newNomad(t *testing.T, nodes []*structs.Node) *nomad {
	t.Helper()
	n := &nomad{Harness: scheduler.NewHarness(t), nodes: nodes}
	for _, node := range nodes {
		must.NoError(t, n.State.UpsertNode(structs.MsgTypeTestSetup, n.NextIndex(), node.Copy()))
	}
	return n
}

// see is the cluster as the planner sees it.
func (n *nomad) see(t *testing.T, job *api.Job) planner.Cluster {
	t.Helper()
	c := planner.Cluster{Nodes: n.nodes}
	all, err := n.State.Allocs(nil, false)
	must.NoError(t, err)
	for raw := all.Next(); raw != nil; raw = all.Next() {
		c.Allocs = append(c.Allocs, raw.(*structs.Allocation).Stub(&structs.AllocStubFields{Resources: true}))
	}
	registered, err := n.State.JobByID(nil, "default", *job.ID)
	must.NoError(t, err)
	if registered != nil {
		c.Registered = convert[*api.Job](t, registered)
	}
	return c
}

// run submits the job and returns the allocations that were made for it now.
func (n *nomad) run(t *testing.T, job *api.Job) []*structs.AllocListStub {
	t.Helper()
	submitted := convert[*structs.Job](t, job)
	submitted.Canonicalize()
	must.NoError(t, n.State.UpsertJob(structs.MsgTypeTestSetup, n.NextIndex(), nil, submitted))
	before := n.NextIndex()
	eval := &structs.Evaluation{
		Namespace: "default", ID: nodeID(int(before)), Priority: 50, Type: submitted.Type,
		TriggeredBy: structs.EvalTriggerJobRegister, JobID: submitted.ID, Status: structs.EvalStatusPending,
	}
	must.NoError(t, n.State.UpsertEvals(structs.MsgTypeTestSetup, n.NextIndex(), []*structs.Evaluation{eval}))
	factory := scheduler.NewServiceScheduler
	switch submitted.Type {
	case structs.JobTypeBatch:
		factory = scheduler.NewBatchScheduler
	case structs.JobTypeSystem:
		factory = scheduler.NewSystemScheduler
	}
	must.NoError(t, n.Process(factory, eval))
	var placed []*structs.AllocListStub
	all, err := n.State.AllocsByJob(nil, "default", submitted.ID, true)
	must.NoError(t, err)
	for _, alloc := range all {
		if alloc.CreateIndex > before {
			placed = append(placed, alloc.Stub(&structs.AllocStubFields{Resources: true}))
		}
	}
	return placed
}

// convert goes through the form in which jobs travel.
func convert[T any](t *testing.T, from any) T {
	t.Helper()
	data, err := json.Marshal(from)
	must.NoError(t, err)
	var to T
	must.NoError(t, json.Unmarshal(data, &to))
	return to
}

// How often Nomad does as planned, on its real scheduler, with 8 GPUs on every
// node. A shortlist and a hard pin always hold; affinities alone hold as long as
// Nomad looks at all nodes.
func TestPinsOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		nodes int
		pin   planner.Pin
		least int // percent
		most  int
	}{
		{90, planner.Soft, 100, 100},
		{90, planner.Shortlist, 100, 100},
		{90, planner.Hard, 100, 100},
		{300, planner.Soft, 10, 70},
		{300, planner.Shortlist, 100, 100},
		{300, planner.Hard, 100, 100},
		{1200, planner.Soft, 0, 30},
		{1200, planner.Shortlist, 100, 100},
		{1200, planner.Hard, 100, 100},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("%d nodes %s", tc.nodes, tc.pin), func(t *testing.T) {
			jobs := 60
			if testing.Short() {
				jobs = 20
			}
			gpu := gpuSpec{model: "NVIDIA A10", units: 8, unitMiB: 1024}
			n := newNomad(t, nodes(tc.nodes, gpu, gpu, gpu, gpu, gpu, gpu, gpu, gpu))
			options := planner.Options{Policy: policy("random"), Pin: tc.pin}
			kept := 0
			for number := range jobs {
				job := newJob(fmt.Sprintf("job-%d", number), 3)
				p := plan(t, job, n.see(t, job), options)
				must.Len(t, 1, p.Groups[0].Places)
				outcome := planner.Compare(p, n.run(t, p.Job))
				must.Len(t, 1, outcome)
				if outcome[0].AsPlanned {
					kept++
				}
			}
			percent := 100 * kept / jobs
			t.Logf("%d of %d as planned", kept, jobs)
			must.Between(t, tc.least, percent, tc.most)
		})
	}
}

// Several asks of one task go to different GPUs; Nomad alone puts them on one
// more often than not.
func TestAsksApartOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			n := newNomad(t, nodes(6, a10(), a10(), a10(), a10()))
			for number := range 10 {
				job := newJob(fmt.Sprintf("job-%d", number), 1, asking(ask(3), ask(5), ask(1)))
				p := plan(t, job, n.see(t, job), planner.Options{Policy: policy("random"), Pin: pin})
				outcome := planner.Compare(p, n.run(t, p.Job))
				must.Len(t, 1, outcome)
				must.True(t, outcome[0].AsPlanned, must.Sprintf("%+v, planned %+v", outcome, p.Groups[0].Places))
				must.Len(t, 3, outcome[0].GPUs)
			}
		})
	}
}

// A whole GPU is had beside shared ones, and only where it is free.
func TestWholeGPUOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := newNomad(t, []*structs.Node{newNode(1, a10(), a10()), newNode(2, h100())})
	shared := newJob("shared", 2)
	p := plan(t, shared, n.see(t, shared), shortlist())
	must.Len(t, 1, n.run(t, p.Job))

	whole := newJob("whole", 1, meta(planner.MetaAmount, "whole"), asking(of("NVIDIA A10")))
	p = plan(t, whole, n.see(t, whole), shortlist())
	must.Eq(t, 22, p.Groups[0].Places[0].Slices[0].Units)
	outcome := planner.Compare(p, n.run(t, p.Job))
	must.True(t, outcome[0].AsPlanned)
	must.NotEq(t, placeOf(n, t, "shared"), outcome[0].GPUs)
}

// of asks for one GPU of a model.
func of(model string) *api.RequestedDevice {
	a := ask(1)
	a.Constraints = []*api.Constraint{api.NewConstraint("${device.attr.model}", "=", model)}
	return a
}

func placeOf(n *nomad, t *testing.T, job string) []string {
	t.Helper()
	c := n.see(t, newJob(job, 1))
	for _, alloc := range c.Allocs {
		if alloc.JobID == job {
			for _, task := range alloc.AllocatedResources.Tasks {
				return []string{task.Devices[0].Name}
			}
		}
	}
	t.Fatalf("job %s has no allocation", job)
	return nil
}

// An unchanged job restarts nothing, more instances leave those that run, and a
// new list of nodes does too. A changed ask is planned anew.
func TestRunningAgainOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	for _, pin := range planner.Pins {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			options := planner.Options{Policy: policy("best-fit"), Pin: pin, Shortlist: 4}
			n := newNomad(t, nodes(12, a10(), a10(), a10()))
			job := newJob("again", 1, asking(ask(3), ask(4)), count(2))
			p := plan(t, job, n.see(t, job), options)
			must.Len(t, 2, n.run(t, p.Job))

			p = plan(t, job, n.see(t, job), options)
			must.True(t, p.Groups[0].Kept)
			must.SliceEmpty(t, p.Groups[0].Places)
			must.SliceEmpty(t, n.run(t, p.Job))

			extend := options
			extend.Extend, extend.Shortlist = true, 8
			p = plan(t, n.see(t, job).Registered, n.see(t, job), extend)
			must.SliceEmpty(t, n.run(t, p.Job))
			if pin == planner.Shortlist {
				must.Len(t, 8, p.Groups[0].Nodes)
			}

			more := newJob("again", 1, asking(ask(3), ask(4)), count(3))
			p = plan(t, more, n.see(t, more), options)
			must.Len(t, 1, p.Groups[0].Places)
			started := n.run(t, p.Job)
			must.Len(t, 1, started)
			must.True(t, planner.Compare(p, started)[0].AsPlanned || pin == planner.Soft)

			larger := newJob("again", 1, asking(ask(6), ask(4)), count(3))
			p = plan(t, larger, n.see(t, larger), options)
			must.False(t, p.Groups[0].Kept)
			must.Len(t, 3, p.Groups[0].Places)
		})
	}
}

// A system job is steered among each node's GPUs.
func TestSystemJobOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := newNomad(t, nodes(8, a10(), a10(), a10(), a10()))
	job := newJob("everywhere", 3, kind("system"))
	p := plan(t, job, n.see(t, job), planner.Options{Policy: policy("random"), Pin: planner.Shortlist})
	must.Len(t, 8, p.Groups[0].Places)
	for _, outcome := range planner.Compare(p, n.run(t, p.Job)) {
		must.True(t, outcome.AsPlanned)
	}
}

func TestBatchJobOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	n := newNomad(t, nodes(300, a10(), a10()))
	job := newJob("batch", 3, kind("batch"), count(5))
	p := plan(t, job, n.see(t, job), planner.Options{Policy: policy("random"), Pin: planner.Shortlist})
	for _, outcome := range planner.Compare(p, n.run(t, p.Job)) {
		must.True(t, outcome.AsPlanned)
	}
}
