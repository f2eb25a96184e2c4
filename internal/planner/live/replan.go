package live

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/internal/planner"
)

// Replanned is what became of one job that a planner has planned.
type Replanned struct {
	Job       string   `json:"job"`
	Namespace string   `json:"namespace"`
	Why       []string `json:"why,omitempty"` // it needs new pins; empty if it does not
	Changed   bool     `json:"changed"`       // whether there were better ones
	Report    *Report  `json:"report,omitempty"`
	Error     string   `json:"error,omitempty"` // why this job was left as it is
}

// ErrNoJob is returned for an ID that no job has which runs or waits.
var ErrNoJob = errors.New("no such job")

// errNotPlanned means that a job is none to be planned again.
var errNotPlanned = errors.New("cannot be planned again")

// Replan looks at all jobs that a planner has planned, or at those of these IDs,
// and plans anew where instances wait or where fewer than threshold nodes of a
// shortlist are left. Tasks that run are not restarted. What cannot be done for
// one job does not keep the others from it; without the table, nothing can be
// done for any. The error matches ErrNoJob if one of the IDs is unknown.
func (s *Site) Replan(ctx context.Context, space string, only []string, options planner.Options, threshold int, dryRun bool) ([]Replanned, error) {
	if _, err := s.table.Snapshot(ctx); err != nil {
		return nil, err
	}
	stubs, err := s.jobs(ctx, space, only)
	if err != nil {
		return nil, err
	}
	options.Replan = true
	all := []Replanned{}
	for _, stub := range stubs {
		one, err := s.replan(ctx, stub, options, threshold, dryRun)
		if errors.Is(err, errNotPlanned) && len(only) == 0 {
			continue
		}
		if err != nil {
			one = &Replanned{Error: err.Error()}
		}
		one.Job, one.Namespace = stub.ID, stub.Namespace
		all = append(all, *one)
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
	}
	return all, nil
}

// jobs lists the jobs that are not stopped, or those of these IDs.
func (s *Site) jobs(ctx context.Context, space string, only []string) ([]*api.JobListStub, error) {
	stubs, _, err := s.nomad.Jobs().List((&api.QueryOptions{Namespace: space}).WithContext(ctx))
	if err != nil {
		return nil, asked("list the jobs", err)
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

func (s *Site) replan(ctx context.Context, stub *api.JobListStub, options planner.Options, threshold int, dryRun bool) (*Replanned, error) {
	q := (&api.QueryOptions{Namespace: stub.Namespace}).WithContext(ctx)
	job, _, err := s.nomad.Jobs().Info(stub.ID, q)
	if err != nil {
		return nil, asked("read job "+stub.ID, err)
	}
	if whyNot := planner.MayReplan(job); whyNot != "" {
		return nil, fmt.Errorf("%w: %s", errNotPlanned, whyNot)
	}
	cluster, err := s.read(ctx, job)
	if err != nil {
		return nil, err
	}
	queued, err := s.queued(ctx, job)
	if err != nil {
		return nil, err
	}
	one := &Replanned{Why: planner.NeedsPins(job, cluster, queued, threshold)}
	if len(one.Why) == 0 {
		return one, nil
	}
	plan, err := planner.Make(job, cluster, options)
	if err != nil {
		return nil, err
	}
	if one.Changed = changes(job, plan.Job); !one.Changed || dryRun {
		one.Report = &Report{Plan: plan}
		return one, nil
	}
	one.Report, err = s.Run(ctx, job, options)
	return one, err
}

// queued returns how many instances wait for a place, by group.
func (s *Site) queued(ctx context.Context, job *api.Job) (map[string]int, error) {
	q := (&api.QueryOptions{Namespace: namespace(job)}).WithContext(ctx)
	summary, _, err := s.nomad.Jobs().Summary(*job.ID, q)
	if err != nil {
		return nil, asked("read the summary of job "+*job.ID, err)
	}
	queued := map[string]int{}
	for group, count := range summary.Summary {
		queued[group] = count.Queued
	}
	return queued, nil
}

// changes reports whether a plan writes other pins than a job bears.
func changes(job, planned *api.Job) bool {
	for i, group := range job.TaskGroups {
		other := planned.TaskGroups[i]
		if !reflect.DeepEqual(group.Constraints, other.Constraints) || !reflect.DeepEqual(group.Affinities, other.Affinities) ||
			!reflect.DeepEqual(group.Meta, other.Meta) {
			return true
		}
		for t, task := range group.Tasks {
			if task.Resources != nil && !reflect.DeepEqual(task.Resources.Devices, other.Tasks[t].Resources.Devices) {
				return true
			}
		}
	}
	return false
}
