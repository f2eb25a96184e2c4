// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
	"github.com/shoenig/test/must"
)

// Nomad is Nomad's scheduler with its own state. It is not safe for concurrent use.
type Nomad struct {
	*scheduler.Harness
	t testing.TB
}

// New returns a Nomad with these nodes.
func New(t testing.TB, nodes ...*structs.Node) *Nomad {
	t.Helper()
	n := &Nomad{Harness: scheduler.NewHarness(t), t: t}
	for _, node := range nodes {
		n.SetNode(node)
	}
	return n
}

// SetNode adds a node or replaces it, and its node pool.
func (n *Nomad) SetNode(node *structs.Node) {
	if pool := node.NodePool; !slices.Contains([]string{structs.NodePoolDefault, structs.NodePoolAll}, pool) {
		must.NoError(n.t, n.State.UpsertNodePools(structs.MsgTypeTestSetup, n.NextIndex(), []*structs.NodePool{{Name: pool}}))
	}
	must.NoError(n.t, n.State.UpsertNode(structs.MsgTypeTestSetup, n.NextIndex(), node.Copy()))
	stored, err := n.State.NodeByID(nil, node.ID)
	must.NoError(n.t, err)
	must.NotNil(n.t, stored, must.Sprint("UpsertNode swallows its errors"))
}

// SetEligible sets whether a node accepts new tasks.
func (n *Nomad) SetEligible(id string, eligible bool) {
	to := structs.NodeSchedulingIneligible
	if eligible {
		to = structs.NodeSchedulingEligible
	}
	must.NoError(n.t, n.State.UpdateNodeEligibility(structs.MsgTypeTestSetup, n.NextIndex(), id, to, 0, nil))
}

// Nodes returns all nodes.
func (n *Nomad) Nodes() []*structs.Node {
	all, err := n.State.Nodes(nil)
	must.NoError(n.t, err)
	var nodes []*structs.Node
	for raw := all.Next(); raw != nil; raw = all.Next() {
		nodes = append(nodes, raw.(*structs.Node))
	}
	return nodes
}

// Allocs returns all allocations, with resources.
func (n *Nomad) Allocs() []*structs.AllocListStub {
	all, err := n.State.Allocs(nil, false)
	must.NoError(n.t, err)
	stubs := []*structs.AllocListStub{}
	for raw := all.Next(); raw != nil; raw = all.Next() {
		stubs = append(stubs, raw.(*structs.Allocation).Stub(&structs.AllocStubFields{Resources: true}))
	}
	return stubs
}

// Job returns a job of the namespace default, nil if there is none.
func (n *Nomad) Job(id string) *structs.Job {
	job, err := n.State.JobByID(nil, "default", id)
	must.NoError(n.t, err)
	return job
}

// Register stores a job with Nomad's defaults, as a new version if it differs, and
// evaluates it. Blocked instances are not retried. A periodic or parameterized job is only
// stored: the evaluation is nil.
func (n *Nomad) Register(job *api.Job) *structs.Evaluation {
	registered := n.take(job)
	if registered.IsPeriodic() || registered.IsParameterized() {
		return nil
	}
	return n.evaluate(registered)
}

// take stores a job.
func (n *Nomad) take(job *api.Job) *structs.Job {
	registered := n.complete(job)
	if old := n.Job(registered.ID); old == nil || old.SpecChanged(registered) {
		must.NoError(n.t, n.State.UpsertJob(structs.MsgTypeTestSetup, n.NextIndex(), nil, registered))
	}
	return registered
}

// complete returns a job with Nomad's defaults.
func (n *Nomad) complete(job *api.Job) *structs.Job {
	complete := Convert[*api.Job](n.t, job)
	complete.Canonicalize()
	registered := Convert[*structs.Job](n.t, complete)
	if registered.NodePool == "" {
		registered.NodePool = "default"
	}
	registered.Canonicalize()
	return registered
}

// Diff returns what registering a job would change, in the form of Nomad's API.
func (n *Nomad) Diff(job *api.Job) *api.JobDiff {
	diff, err := n.Job(*job.ID).Diff(n.complete(job), true)
	must.NoError(n.t, err)
	return Convert[*api.JobDiff](n.t, diff)
}

// Launch starts a periodic or parameterized job once, as a child job.
func (n *Nomad) Launch(id string) *structs.Evaluation {
	child := n.Job(id).Copy()
	child.ParentID, child.ID = id, fmt.Sprintf("%s/dispatch-%d", id, n.NextIndex())
	child.Name, child.Status = child.ID, ""
	child.Periodic, child.Dispatched = nil, child.ParameterizedJob != nil
	must.NoError(n.t, n.State.UpsertJob(structs.MsgTypeTestSetup, n.NextIndex(), nil, child))
	return n.evaluate(child)
}

func (n *Nomad) evaluate(job *structs.Job) *structs.Evaluation { return n.decide(job, n.pend(job)) }

// pend creates a pending evaluation.
func (n *Nomad) pend(job *structs.Job) *structs.Evaluation {
	index := n.NextIndex()
	eval := &structs.Evaluation{
		ID: NodeID(int(index)), Namespace: "default", Priority: job.Priority, Type: job.Type,
		TriggeredBy: structs.EvalTriggerJobRegister, JobID: job.ID, Status: structs.EvalStatusPending, CreateIndex: index,
	}
	must.NoError(n.t, n.State.UpsertEvals(structs.MsgTypeTestSetup, index, []*structs.Evaluation{eval}))
	return eval
}

func (n *Nomad) decide(job *structs.Job, eval *structs.Evaluation) *structs.Evaluation {
	factories := map[string]scheduler.Factory{
		structs.JobTypeService: scheduler.NewServiceScheduler, structs.JobTypeBatch: scheduler.NewBatchScheduler,
		structs.JobTypeSystem: scheduler.NewSystemScheduler, structs.JobTypeSysBatch: scheduler.NewSysBatchScheduler,
	}
	n.process(factories[job.Type], eval)
	decided := n.Evals[len(n.Evals)-1].Copy()
	decided.CreateIndex = eval.CreateIndex
	must.NoError(n.t, n.State.UpsertEvals(structs.MsgTypeTestSetup, n.NextIndex(), []*structs.Evaluation{decided}))
	return decided
}

// process runs a scheduler. Unlike Harness.Process it leaks no goroutine and logs nothing.
func (n *Nomad) process(factory scheduler.Factory, eval *structs.Evaluation) {
	events := make(chan any)
	var drain sync.WaitGroup
	drain.Go(func() {
		for range events { // the scheduler's warnings
		}
	})
	defer drain.Wait()
	defer close(events)
	must.NoError(n.t, factory(hclog.NewNullLogger(), events, n.Snapshot(), n.Harness).Process(eval))
}

// Started returns the allocations that an evaluation created.
func (n *Nomad) Started(eval *structs.Evaluation) []*structs.AllocListStub {
	var made []*structs.AllocListStub
	for _, alloc := range n.Allocs() {
		if alloc.EvalID == eval.ID && alloc.CreateIndex > eval.CreateIndex {
			made = append(made, alloc)
		}
	}
	return made
}

// Finish sets an allocation to complete.
func (n *Nomad) Finish(id string) { n.setStatus(id, structs.AllocClientStatusComplete) }

// Run sets an allocation to running.
func (n *Nomad) Run(id string) { n.setStatus(id, structs.AllocClientStatusRunning) }

func (n *Nomad) setStatus(id, status string) {
	alloc, err := n.State.AllocByID(nil, id)
	must.NoError(n.t, err)
	changed := alloc.Copy()
	changed.ClientStatus = status
	must.NoError(n.t, n.State.UpdateAllocsFromClient(structs.MsgTypeTestSetup, n.NextIndex(), []*structs.Allocation{changed}))
}

// Evaluate evaluates a registered job again, as after a change of a node.
func (n *Nomad) Evaluate(id string) *structs.Evaluation { return n.evaluate(n.Job(id)) }

// FinishOn sets the allocations on a GPU to complete, except those of one job.
func (n *Nomad) FinishOn(gpu, but string) {
	for _, alloc := range n.Allocs() {
		for _, task := range alloc.AllocatedResources.Tasks {
			if alloc.JobID != but && slices.ContainsFunc(task.Devices, func(d *structs.AllocatedDeviceResource) bool { return d.Name == gpu }) {
				n.Finish(alloc.ID)
			}
		}
	}
}

// Convert converts between types by their JSON.
func Convert[T any](t testing.TB, from any) T {
	t.Helper()
	data, err := json.Marshal(from)
	must.NoError(t, err)
	var to T
	must.NoError(t, json.Unmarshal(data, &to))
	return to
}
