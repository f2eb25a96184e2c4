// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
)

// rounds bounds how often a job is planned after other tasks took the units first.
const rounds = 3

// Report is the result of submitting a job.
type Report struct {
	Plan *planner.Plan `json:"plan"` // the last one

	// Rounds is how often the job was planned: more than once if other tasks took the units
	// first.
	Rounds int `json:"rounds"`

	Evaluation string            `json:"evaluation,omitempty"` // ID of Nomad's evaluation; "" if the job is started later
	Status     string            `json:"status,omitempty"`     // of the evaluation
	Blocked    string            `json:"blocked,omitempty"`    // ID of the evaluation that waits for resources
	Queue      *Queued           `json:"queue,omitempty"`      // position in a batch queue; nil if the job does not wait in one
	Failures   map[string]string `json:"failures,omitempty"`   // by group: why Nomad found no place
	Outcomes   []planner.Outcome `json:"outcomes"`
	Warnings   string            `json:"warnings,omitempty"` // Nomad's warnings about the job

	Deployment *Deployment `json:"deployment,omitempty"` // its last state; nil if it was not followed

	deployment string // ID of the evaluation's deployment, "" if none
	index      uint64 // JobModifyIndex of the submitted version
}

// AsPlanned reports whether Nomad started all planned instances where they were planned.
func (r *Report) AsPlanned() bool {
	for _, o := range r.Outcomes {
		if !o.AsPlanned {
			return false
		}
	}
	return true
}

// Plan plans a job and reserves nothing.
func (s *Site) Plan(ctx context.Context, job *planner.Document, options planner.Options) (*planner.Plan, error) {
	if !planner.HasAsks(job.Job) {
		return planner.PlanJob(job.Job, planner.Cluster{}, options)
	}
	cluster, err := s.read(ctx, job.Job)
	if err != nil {
		return nil, err
	}
	return planner.PlanJob(job.Job, cluster, options)
}

// Reserve plans a job and reserves its units; the caller has the job submitted.
func (s *Site) Reserve(ctx context.Context, job *planner.Document, options planner.Options) (*planner.Plan, error) {
	for round := 1; ; round++ {
		plan, err := s.planAndReserve(ctx, job.Job, options, Submission{})
		if !lostRace(err) || round == rounds {
			return plan, err
		}
	}
}

// Run plans a job, submits it and waits for the end of its evaluation. If other tasks took
// the units first it tries again, for at most rounds in all.
func (s *Site) Run(ctx context.Context, job *planner.Document, options planner.Options, how Submission) (*Report, error) {
	report := &Report{Outcomes: []planner.Outcome{}}
	for {
		report.Rounds++
		again, err := s.try(ctx, job, options, &how, report)
		if err != nil {
			return report, err
		}
		if !again || report.Rounds == rounds {
			break
		}
	}
	if how.Placed != nil {
		how.Placed(report)
	}
	if !how.Follow || report.deployment == "" {
		return report, nil
	}
	return report, s.followDeployment(ctx, report, how.Progress)
}

// try is one round. It reports whether another round may succeed.
func (s *Site) try(ctx context.Context, job *planner.Document, options planner.Options, how *Submission, report *Report) (again bool, err error) {
	last := report.Rounds == rounds
	plan, err := s.planAndReserve(ctx, job.Job, options, *how)
	if lostRace(err) && !last {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	report.Plan = plan
	if !how.Detach {
		defer s.release(ctx, plan.Reservations)
	}
	answer, err := s.register(ctx, job, plan, options, *how)
	if err != nil && how.Detach {
		s.release(ctx, plan.Reservations)
	}
	if lostRace(err) && !last {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if options.Replan {
		job.Job.JobModifyIndex = &answer.JobModifyIndex // another round starts from this version
	}
	if how.CheckIndex != nil {
		how.CheckIndex = &answer.JobModifyIndex
	}
	report.Warnings, report.Evaluation, report.index = answer.Warnings, answer.EvalID, answer.JobModifyIndex
	if answer.EvalID == "" || how.Detach {
		return false, nil
	}
	if err := s.follow(ctx, plan, report); err != nil {
		return false, err
	}
	return !last && open(report.Outcomes), nil
}

// open reports whether a planned instance was not started.
func open(outcomes []planner.Outcome) bool {
	for _, o := range outcomes {
		if o.Alloc == "" {
			return true
		}
	}
	return false
}

// errRace is returned when the cluster changed since it was read for the plan.
var errRace = errors.New("the cluster changed while the job was planned")

// errOtherVersion is returned when a registered job changed since it was read: submitting
// it with new pins would undo that change.
var errOtherVersion = errors.New("another version of the job was just submitted, or the job was stopped; run replan again if it still needs new pins")

func sameVersion(job, registered *api.Job) bool {
	return registered != nil && job.JobModifyIndex != nil && registered.JobModifyIndex != nil &&
		*job.JobModifyIndex == *registered.JobModifyIndex
}

func lostRace(err error) bool { return errors.Is(err, errRace) }

// planAndReserve plans a job and reserves its units, in place of the reservations of an
// earlier plan.
func (s *Site) planAndReserve(ctx context.Context, job *api.Job, options planner.Options, how Submission) (*planner.Plan, error) {
	if !planner.HasAsks(job) {
		return planner.PlanJob(job, planner.Cluster{}, options)
	}
	cluster, err := s.read(ctx, job)
	if err != nil {
		return nil, err
	}
	if options.Replan && !sameVersion(job, cluster.Registered) {
		return nil, errOtherVersion
	}
	plan, err := planner.PlanJob(job, cluster, options)
	if err != nil {
		return nil, err
	}
	if how.CheckIndex != nil && *how.CheckIndex != plan.Index {
		return nil, fmt.Errorf("job %s: %w: it is %d, want %d", *job.ID, ErrIndex, plan.Index, *how.CheckIndex)
	}
	s.release(ctx, planner.StaleReservations(cluster.Table, plan.Space, plan.ID))
	for i, r := range plan.Reservations {
		err := s.table.Reserve(ctx, r.Owner, planner.ReservationTime, r.Requests)
		if err == nil {
			continue
		}
		s.release(ctx, plan.Reservations[:i])
		if errors.Is(err, allocator.ErrNoRoom) || errors.Is(err, allocator.ErrUnitMismatch) {
			err = fmt.Errorf("%w: %w", errRace, err)
		}
		return nil, fmt.Errorf("reserve GPU memory for %s: %w", r.Owner, err)
	}
	return plan, nil
}

// releaseTime bounds the release of reservations, which also runs after an interrupt.
const releaseTime = 10 * time.Second

// release releases reservations. Those that it cannot release expire.
func (s *Site) release(ctx context.Context, reservations []planner.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for _, r := range reservations {
		var gpus []allocator.GPUID
		for _, request := range r.Requests {
			gpus = append(gpus, request.GPU)
		}
		_ = s.table.Release(ctx, r.Owner, r.Owner.Alloc, gpus)
	}
}
