// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/internal/planner"
)

// Replanned is the result of checking one planned job.
type Replanned struct {
	Job       string   `json:"job"`
	Namespace string   `json:"namespace"`
	Why       []string `json:"why,omitempty"` // why it needs new pins; empty if it does not
	Changed   bool     `json:"changed"`       // whether better pins were found
	Report    *Report  `json:"report,omitempty"`
	Error     string   `json:"error,omitempty"` // why this job was left unchanged
}

// ErrNoJob is returned when no running or waiting job has a given ID.
var ErrNoJob = errors.New("no such job")

// errNotPlanned is returned when a job cannot be planned again.
var errNotPlanned = errors.New("cannot be planned again")

// Replan checks all planned jobs, or those with the given IDs, and plans those again where
// instances wait or fewer than threshold nodes of a shortlist are usable. Running tasks are
// not restarted. A job that fails does not stop the others; an unavailable table does. The
// error matches ErrNoJob if one of the IDs is unknown.
func (s *Site) Replan(ctx context.Context, space string, only []string, options planner.Options, threshold int, dryRun bool) ([]Replanned, error) {
	if _, err := s.table.Snapshot(ctx); err != nil {
		return nil, err
	}
	stubs, err := s.jobs(ctx, space, only)
	if err != nil {
		return nil, err
	}
	return s.replanEach(ctx, stubs, len(only) > 0, options, threshold, dryRun)
}

// replanEach plans jobs again. It skips those that cannot be planned again, unless the
// caller named them.
func (s *Site) replanEach(ctx context.Context, stubs []*api.JobListStub, named bool, options planner.Options, threshold int, dryRun bool) ([]Replanned, error) {
	nodes, err := s.readNodes(ctx)
	if err != nil {
		return nil, err
	}
	options.Replan = true
	all := []Replanned{}
	for _, stub := range stubs {
		one, err := s.replan(ctx, stub, nodes, options, threshold, dryRun)
		if errors.Is(err, errNotPlanned) && !named {
			continue
		}
		if one == nil {
			one = &Replanned{}
		}
		if err != nil {
			one.Error = err.Error()
		}
		one.Job, one.Namespace = stub.ID, stub.Namespace
		all = append(all, *one)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
	}
	return all, nil
}

// jobs lists the jobs that are not stopped, or those with the given IDs.
func (s *Site) jobs(ctx context.Context, space string, only []string) ([]*api.JobListStub, error) {
	stubs, _, err := s.nomad.Jobs().List((&api.QueryOptions{Namespace: space}).WithContext(ctx))
	if err != nil {
		return nil, nomadFailed("list the jobs", err)
	}
	known := map[string]bool{}
	stubs = slices.DeleteFunc(stubs, func(stub *api.JobListStub) bool {
		known[stub.ID] = known[stub.ID] || !stub.Stop
		return stub.Stop || stub.ParentID != "" || len(only) > 0 && !slices.Contains(only, stub.ID)
	})
	for _, id := range only {
		if !known[id] {
			return nil, fmt.Errorf("%w: Nomad has no job %q in namespace %s, or it was stopped", ErrNoJob, id, space)
		}
	}
	return stubs, nil
}

func (s *Site) replan(ctx context.Context, stub *api.JobListStub, nodes []*structs.Node, options planner.Options, threshold int, dryRun bool) (*Replanned, error) {
	text, err := s.stored(ctx, stub.Namespace, stub.ID)
	if err != nil {
		return nil, err
	}
	job, err := planner.ReadJob(text)
	if err != nil {
		return nil, err
	}
	if whyNot := planner.MayReplan(job.Job); whyNot != "" {
		return nil, fmt.Errorf("%w: %s", errNotPlanned, whyNot)
	}
	queue, err := s.queueOf(ctx, job.Job)
	if err != nil {
		return nil, err
	}
	if queue != nil {
		return nil, fmt.Errorf("%w: it waits in the batch queue of node pool %s, and another version would lose its place there",
			errNotPlanned, *job.Job.NodePool)
	}
	queued, err := s.queued(ctx, job.Job)
	if err != nil {
		return nil, err
	}
	one := &Replanned{Why: planner.NeedsPins(job.Job, planner.Cluster{Nodes: nodes}, queued, threshold)}
	if len(one.Why) == 0 {
		return one, nil
	}
	return one, s.renew(ctx, job, one, options, dryRun)
}

// renew gives a registered job new pins if they differ from its pins.
func (s *Site) renew(ctx context.Context, job *planner.Document, one *Replanned, options planner.Options, dryRun bool) error {
	cluster, err := s.read(ctx, job.Job)
	if err != nil {
		return err
	}
	plan, err := planner.PlanJob(job.Job, cluster, options)
	if err != nil {
		return err
	}
	operations, err := job.Patch(plan)
	if err != nil {
		return err
	}
	if one.Report, one.Changed = (&Report{Plan: plan}), len(operations) > 0; !one.Changed {
		return nil
	}
	text, err := job.Apply(operations)
	if err != nil {
		return err
	}
	if err := s.keepsAll(ctx, plan, text); err != nil {
		one.Changed = false
		return err
	}
	if dryRun {
		return nil
	}
	one.Report, err = s.resubmit(ctx, job, options)
	return err
}

// resubmit submits a registered job with new pins and its original source, and checks that
// Nomad kept all its fields.
func (s *Site) resubmit(ctx context.Context, job *planner.Document, options planner.Options) (*Report, error) {
	source, err := s.source(ctx, job.Job)
	if err != nil {
		return nil, err
	}
	report, err := s.Run(ctx, job, options, Submission{Source: source})
	if err != nil {
		return report, err
	}
	return report, s.keptAll(ctx, report.index, job)
}

// queued returns how many instances wait for a place, by group.
func (s *Site) queued(ctx context.Context, job *api.Job) (map[string]int, error) {
	q := (&api.QueryOptions{Namespace: namespace(job)}).WithContext(ctx)
	summary, _, err := s.nomad.Jobs().Summary(*job.ID, q)
	if err != nil {
		return nil, nomadFailed("read the summary of job "+*job.ID, err)
	}
	queued := map[string]int{}
	for group, count := range summary.Summary {
		queued[group] = count.Queued
	}
	return queued, nil
}
