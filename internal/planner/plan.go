// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator/placement"
)

// ErrJob is returned when a job is invalid for any cluster.
var ErrJob = errors.New("job cannot be planned")

// Options are the settings of a plan.
type Options struct {
	Policy    placement.Policy
	Pin       Pin
	Shortlist int // nodes on the list of Shortlist; DefaultShortlist if 0

	// Replan means that the job is the registered one, unchanged: groups keep the kind of
	// their pin, and running groups get a new list of nodes.
	Replan bool

	// PreserveCounts plans with the counts of the registered job, as Nomad's option of that
	// name keeps them: an autoscaler may have changed them.
	PreserveCounts bool
}

// DefaultShortlist is the default length of a shortlist: enough nodes to survive the loss of
// several, few enough for Nomad to score all of them.
const DefaultShortlist = 32

// Plan is where the tasks of a job should be placed.
type Plan struct {
	Job    *api.Job `json:"-"` // with the pins and Nomad's defaults; Document.Patch returns what to submit
	ID     string   `json:"job"`
	Space  string   `json:"namespace"`
	Index  uint64   `json:"index"` // JobModifyIndex of the registered job; 0 if it is not registered, or asks for no GPU memory
	Policy string   `json:"policy"`
	Queue  string   `json:"queue,omitempty"` // kind of the batch queue that the job passes through, "" if none
	Groups []Group  `json:"groups"`          // those that ask for GPU memory

	Reservations []Reservation `json:"-"` // to be written before the job is submitted
}

// Group is what was decided for one task group.
type Group struct {
	Name   string     `json:"group"`
	Count  int        `json:"count"`
	Pin    Pin        `json:"pin,omitempty"`   // "" if the group has none
	Kept   bool       `json:"kept"`            // it keeps running with its current pins
	Note   string     `json:"note,omitempty"`  // for the operator
	Nodes  []string   `json:"nodes,omitempty"` // IDs of the nodes it is confined to, best first
	Places []Place    `json:"places"`          // of the instances to be started
	Short  []Shortage `json:"short,omitempty"` // of those that fit nowhere

	// Replaces is how many of the places are for instances that run now. Nomad replaces
	// these following the job's update block, commonly one at a time.
	Replaces int `json:"replaces,omitempty"`
}

// Place is where one instance of a group should run.
type Place struct {
	Node     string  `json:"node"` // Nomad's ID
	NodeName string  `json:"node_name"`
	Slices   []Slice `json:"slices"`
	Why      string  `json:"why"`
}

// Slice is what one ask of an instance gets.
type Slice struct {
	Task    string `json:"task"`
	GPU     string `json:"gpu"` // UUID
	Index   int    `json:"index"`
	Model   string `json:"model"`
	Units   int    `json:"units"`
	UnitMiB uint64 `json:"unit_mib"`
	MiB     uint64 `json:"mib"`
	Left    int    `json:"units_left"` // free units of the GPU afterwards
	Of      int    `json:"units_of"`   // all units of the GPU
}

// Missing returns how many instances fit nowhere.
func (p *Plan) Missing() int {
	missing := 0
	for _, g := range p.Groups {
		for _, s := range g.Short {
			missing += s.Instances
		}
	}
	return missing
}

// PlanJob plans a job and does not change it. The error matches ErrJob if the job, or a
// profile that it names, is invalid.
func PlanJob(job *api.Job, cluster Cluster, options Options) (*Plan, error) {
	if !HasAsks(job) {
		return &Plan{Job: job, ID: deref(job.ID), Space: namespace(job), Policy: options.Policy.Name, Groups: []Group{}}, nil
	}
	planned, err := canonical(job)
	if err != nil {
		return nil, err
	}
	if options.PreserveCounts {
		preserveCounts(planned, cluster.Registered)
	}
	p, err := newPlanning(planned, cluster, options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJob, err)
	}
	plan := &Plan{
		Job: planned, ID: *planned.ID, Space: *planned.Namespace, Policy: options.Policy.Name, Queue: cluster.Queue, Groups: []Group{},
	}
	if old := cluster.Registered; old != nil && old.JobModifyIndex != nil {
		plan.Index = *old.JobModifyIndex
	}
	for _, w := range p.groups {
		group, err := p.plan(w)
		if err != nil {
			return nil, fmt.Errorf("%w: group %q: %w", ErrJob, *w.spec.Name, err)
		}
		plan.Groups = append(plan.Groups, group)
		plan.Reservations = append(plan.Reservations, p.reservations(w, group)...)
	}
	return plan, nil
}

// preserveCounts copies the registered counts. As in Nomad, a stopped job keeps its counts
// too.
func preserveCounts(job, registered *api.Job) {
	if registered == nil {
		return
	}
	counts := map[string]*int{}
	for _, group := range registered.TaskGroups {
		counts[deref(group.Name)] = group.Count
	}
	for _, group := range job.TaskGroups {
		if count := counts[deref(group.Name)]; count != nil {
			kept := *count
			group.Count = &kept
		}
	}
}

// canonical returns a copy of a job with Nomad's defaults.
func canonical(job *api.Job) (*api.Job, error) {
	copied, err := clone(job)
	if err != nil {
		return nil, err
	}
	copied.Canonicalize()
	return copied, nil
}

// clone copies a job by its JSON, as a submission does.
func clone(job *api.Job) (*api.Job, error) {
	data, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", deref(job.ID), err)
	}
	var copied api.Job
	if err := json.Unmarshal(data, &copied); err != nil {
		return nil, fmt.Errorf("job %s: %w", deref(job.ID), err)
	}
	return &copied, nil
}

// namespace returns the namespace that Nomad registers the job in.
func namespace(job *api.Job) string {
	if space := deref(job.Namespace); space != "" {
		return space
	}
	return api.DefaultNamespace
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
