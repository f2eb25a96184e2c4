// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/state"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/simulate"
)

// Stock is Nomad's unmodified scheduler. It takes any of equal places, so its results
// differ a little from run to run.
func Stock() simulate.Contender {
	return simulate.Contender{Name: "nomad", New: func(t *simulate.Trace, seed uint64) (simulate.Scheduler, error) {
		return newScheduler(t, seed)
	}}
}

// Steered is Nomad with jobs that a policy has pinned.
func Steered(steering simulate.Steering, pin planner.Pin) simulate.Contender {
	name := fmt.Sprintf("nomad + %s by %s", pin, steering.Name())
	return simulate.Contender{Name: name, New: func(t *simulate.Trace, seed uint64) (simulate.Scheduler, error) {
		s, err := newScheduler(t, seed)
		if err != nil {
			return nil, err
		}
		options := planner.Options{Policy: steering.Policy, Pin: pin}
		s.guide, s.pin, s.pinner = steering.NewGuide(t, seed), pin, planner.NewPinner(s.nodes, options)
		return s, nil
	}}
}

// nomad runs Nomad's scheduler on a state store.
type nomad struct {
	logger  hclog.Logger
	harness *scheduler.Harness
	seed    uint64
	nodes   []*structs.Node
	guide   *simulate.Guide // nil: without steering
	pin     planner.Pin
	pinner  *planner.Pinner // writes the pin
	running map[int]running
	ids     map[string]string // Nomad's ID of each node of the trace
	names   map[string]string // the reverse of ids
}

// running is a task that Nomad has placed.
type running struct {
	eval, alloc string
	place       placement.Decision
}

func newScheduler(t *simulate.Trace, seed uint64) (*nomad, error) {
	logger := hclog.NewNullLogger()
	store, err := state.NewStateStore(&state.StateStoreConfig{Logger: logger, Region: "global"})
	if err != nil {
		return nil, err
	}
	s := &nomad{
		logger: logger,
		// The harness applies plans to the store. Only methods that are not called here
		// use its testing.TB.
		harness: scheduler.NewHarnessWithState(nil, store),
		seed:    seed,
		running: map[int]running{},
		ids:     map[string]string{},
		names:   map[string]string{},
	}
	for i, n := range t.Nodes {
		id := uuid(0, uint64(i))
		s.ids[n.ID], s.names[id] = id, n.ID
		if err := s.addNode(id, n); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.ID, err)
		}
	}
	return s, nil
}

func (s *nomad) addNode(id string, n placement.Node) error {
	node, err := newNode(id, n)
	if err != nil {
		return err
	}
	if err := s.harness.State.UpsertNode(structs.MsgTypeTestSetup, s.harness.NextIndex(), node); err != nil {
		return err
	}
	// The store returns no error for a node that it cannot index.
	if kept, err := s.harness.State.NodeByID(nil, id); err != nil || kept == nil {
		return errors.Join(errors.New("Nomad's state store rejects it"), err)
	}
	s.nodes = append(s.nodes, node)
	return nil
}

// Place submits a job, runs the scheduler, and reads where the task was placed. A job that
// cannot be placed is withdrawn.
func (s *nomad) Place(number int, task simulate.Task) (bool, error) {
	job := newJob(number, task)
	if s.guide != nil {
		pinned, err := s.steer(job, task)
		if err != nil || pinned == nil {
			return false, err
		}
		job = pinned
	}
	stored, err := submitted(job)
	if err != nil {
		return false, err
	}
	eval, alloc, err := s.schedule(number, stored)
	if err != nil {
		return false, err
	}
	if alloc == nil {
		return false, s.withdraw(number, eval)
	}
	r := running{eval: eval, alloc: alloc.ID, place: s.placeOf(task.Request, alloc)}
	s.running[number] = r
	if s.guide != nil {
		return true, s.guide.Place(r.place)
	}
	return true, nil
}

// steer pins a job to the places that the guide chooses; it returns nil if the job fits
// nowhere. A job that asks for no GPU memory stays unchanged.
func (s *nomad) steer(job *api.Job, task simulate.Task) (*api.Job, error) {
	s.guide.Observe(task.Request)
	if !planner.HasAsks(job) {
		return job, nil
	}
	length := 1
	if s.pin == planner.Shortlist {
		length = planner.DefaultShortlist
	}
	places, err := s.guide.Shortlist(task.Request, length)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	for i := range places {
		places[i].Node = s.ids[places[i].Node]
		for j := range places[i].Slices {
			places[i].Slices[j].Units = unitsFor(places[i].Slices[j].Units)
		}
	}
	return s.pinner.Pin(job, places)
}

// End removes a task from Nomad, as its garbage collection would.
func (s *nomad) End(number int) error {
	r := s.running[number]
	delete(s.running, number)
	err := s.withdraw(number, r.eval, r.alloc)
	if s.guide != nil {
		err = errors.Join(err, s.guide.Remove(r.place))
	}
	return err
}

// schedule evaluates the job. The allocation is nil if it fits nowhere.
func (s *nomad) schedule(number int, job *structs.Job) (evalID string, _ *structs.Allocation, _ error) {
	store := s.harness.State
	if err := store.UpsertJob(structs.MsgTypeTestSetup, s.harness.NextIndex(), nil, job); err != nil {
		return "", nil, err
	}
	eval := &structs.Evaluation{
		ID:          uuid(s.seed, uint64(number)),
		Namespace:   job.Namespace,
		Priority:    job.Priority,
		Type:        job.Type,
		TriggeredBy: structs.EvalTriggerJobRegister,
		JobID:       job.ID,
		Status:      structs.EvalStatusPending,
	}
	if err := store.UpsertEvals(structs.MsgTypeTestSetup, s.harness.NextIndex(), []*structs.Evaluation{eval}); err != nil {
		return "", nil, err
	}
	events := make(chan any, 1) // for port collisions, which never happen here
	err := scheduler.NewServiceScheduler(s.logger, events, s.harness.Snapshot(), s.harness).Process(eval)
	plans := s.harness.Plans
	s.harness.Plans, s.harness.Evals, s.harness.CreateEvals = nil, nil, nil
	if err != nil || len(plans) == 0 {
		return eval.ID, nil, err
	}
	for _, allocs := range plans[0].NodeAllocation {
		return eval.ID, allocs[0], nil
	}
	return eval.ID, nil, nil
}

// withdraw removes a job with its evaluation and allocations.
func (s *nomad) withdraw(number int, eval string, allocs ...string) error {
	store := s.harness.State
	err := store.DeleteEval(s.harness.NextIndex(), []string{eval}, allocs, false)
	return errors.Join(err, store.DeleteJob(s.harness.NextIndex(), structs.DefaultNamespace, jobID(number)))
}

// placeOf returns what an allocation holds, in the units of the trace. All devices of one
// ask are of one GPU.
func (s *nomad) placeOf(r placement.Request, alloc *structs.Allocation) placement.Decision {
	d := placement.Decision{Node: s.names[alloc.NodeID], CPU: r.CPU, MemoryMiB: r.MemoryMiB}
	for i, device := range alloc.AllocatedResources.Tasks["task"].Devices {
		slice := placement.Slice{GPU: device.Name, Units: r.Asks[i].Units}
		if r.Asks[i].Whole {
			slice.Units = units * milliPerUnit
		}
		d.Slices = append(d.Slices, slice)
	}
	return d
}
