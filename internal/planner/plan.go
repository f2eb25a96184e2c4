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

// ErrJob is returned for a job that no cluster can take as it is written.
var ErrJob = errors.New("job cannot be planned")

// Options say how to plan.
type Options struct {
	Policy    placement.Policy
	Pin       Pin
	Shortlist int // nodes on the list of Shortlist; DefaultShortlist if 0

	// Replan says that the job is the registered one, as it is: groups have the
	// pin that they bear, and those that run get a fresh list of nodes.
	Replan bool

	// PreserveCounts plans with the counts that the registered job has, as Nomad
	// keeps them when it is asked to: an autoscaler may have changed them.
	PreserveCounts bool
}

// DefaultShortlist is how many nodes a shortlist has: enough to survive the loss
// of several, few enough for Nomad to look at all of them.
const DefaultShortlist = 32

// Plan says where the tasks of a job should go.
type Plan struct {
	Job    *api.Job `json:"-"` // with the pins and Nomad's defaults; Document.Patch has what to submit
	ID     string   `json:"job"`
	Space  string   `json:"namespace"`
	Index  uint64   `json:"index"` // JobModifyIndex of the registered job; 0 if it is not registered, or asks for nothing
	Policy string   `json:"policy"`
	Queue  string   `json:"queue,omitempty"` // kind of the batch queue that the job goes through, "" if none
	Groups []Group  `json:"groups"`          // those that ask for GPU memory

	Reservations []Reservation `json:"-"` // to be made before the job is submitted
}

// Group is what was decided for one task group.
type Group struct {
	Name   string     `json:"group"`
	Count  int        `json:"count"`
	Pin    Pin        `json:"pin,omitempty"`   // "" if it is not confined to anything
	Kept   bool       `json:"kept"`            // it runs unchanged, with the pins it has
	Note   string     `json:"note,omitempty"`  // what a person should know
	Nodes  []string   `json:"nodes,omitempty"` // IDs of the nodes it is confined to, best first
	Places []Place    `json:"places"`          // of the instances to be started
	Short  []Shortage `json:"short,omitempty"` // of those that fit nowhere

	// Replaces is how many of the places are of instances that run now. Nomad
	// replaces them as the job's update block says, commonly one at a time.
	Replaces int `json:"replaces,omitempty"`
}

// Place is where one instance of a group should go.
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

// Missing is how many instances fit nowhere.
func (p *Plan) Missing() int {
	missing := 0
	for _, g := range p.Groups {
		for _, s := range g.Short {
			missing += s.Instances
		}
	}
	return missing
}

// Make plans a job. It does not change it. The error matches ErrJob if the job,
// or a profile that it names, has to be changed first.
func Make(job *api.Job, cluster Cluster, options Options) (*Plan, error) {
	if !HasAsks(job) {
		return &Plan{Job: job, ID: text(job.ID), Space: namespace(job), Policy: options.Policy.Name, Groups: []Group{}}, nil
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
	for _, w := range p.wanted {
		group, err := p.plan(w)
		if err != nil {
			return nil, fmt.Errorf("%w: group %q: %w", ErrJob, *w.spec.Name, err)
		}
		plan.Groups = append(plan.Groups, group)
		plan.Reservations = append(plan.Reservations, p.reservations(w, group)...)
	}
	return plan, nil
}

// preserveCounts does as Nomad does: also a stopped job keeps its counts.
func preserveCounts(job, registered *api.Job) {
	if registered == nil {
		return
	}
	counts := map[string]*int{}
	for _, group := range registered.TaskGroups {
		counts[text(group.Name)] = group.Count
	}
	for _, group := range job.TaskGroups {
		if count := counts[text(group.Name)]; count != nil {
			kept := *count
			group.Count = &kept
		}
	}
}

// canonical copies a job, with Nomad's defaults.
func canonical(job *api.Job) (*api.Job, error) {
	copied, err := clone(job)
	if err != nil {
		return nil, err
	}
	copied.Canonicalize()
	return copied, nil
}

// clone copies a job, as a submission would.
func clone(job *api.Job) (*api.Job, error) {
	data, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", text(job.ID), err)
	}
	var copied api.Job
	if err := json.Unmarshal(data, &copied); err != nil {
		return nil, fmt.Errorf("job %s: %w", text(job.ID), err)
	}
	return &copied, nil
}

// namespace is the one that Nomad puts the job into.
func namespace(job *api.Job) string {
	if space := text(job.Namespace); space != "" {
		return space
	}
	return api.DefaultNamespace
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
