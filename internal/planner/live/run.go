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

// rounds bounds how often a job is planned again after somebody else was faster.
const rounds = 3

// Report is what became of a job that was submitted.
type Report struct {
	Plan *planner.Plan `json:"plan"` // the last

	// Rounds is how often the job was planned: more than once if others took
	// the places first.
	Rounds int `json:"rounds"`

	Evaluation string            `json:"evaluation,omitempty"` // Nomad's; "" if the job is started later
	Status     string            `json:"status,omitempty"`     // of the evaluation
	Blocked    string            `json:"blocked,omitempty"`    // the evaluation that waits for room
	Queue      *Queued           `json:"queue,omitempty"`      // where the job waits for its turn; nil if it does not
	Failures   map[string]string `json:"failures,omitempty"`   // by group: why Nomad found no place
	Outcomes   []planner.Outcome `json:"outcomes"`
	Warnings   string            `json:"warnings,omitempty"` // of Nomad's, about the job

	Deployment *Deployment `json:"deployment,omitempty"` // as it ended; nil if it was not followed

	deployment string // ID of the one that the evaluation made, "" if none
	index      uint64 // JobModifyIndex of what was submitted
}

// AsPlanned reports whether Nomad started all that was planned where it was
// planned.
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
		return planner.Make(job.Job, planner.Cluster{}, options)
	}
	cluster, err := s.read(ctx, job.Job)
	if err != nil {
		return nil, err
	}
	return planner.Make(job.Job, cluster, options)
}

// Reserve plans a job and keeps what it will take, for somebody else to submit
// it.
func (s *Site) Reserve(ctx context.Context, job *planner.Document, options planner.Options) (*planner.Plan, error) {
	for round := 1; ; round++ {
		plan, err := s.book(ctx, job.Job, options, Submission{})
		if !lostRace(err) || round == rounds {
			return plan, err
		}
	}
}

// Run plans a job, submits it and waits until Nomad has decided. If others were
// faster it does so again, a few times.
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

// try is one round. It reports whether another may do better.
func (s *Site) try(ctx context.Context, job *planner.Document, options planner.Options, how *Submission, report *Report) (again bool, err error) {
	last := report.Rounds == rounds
	plan, err := s.book(ctx, job.Job, options, *how)
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

// errRace means that the cluster is no longer what the plan was made of.
var errRace = errors.New("somebody else was faster")

// errOtherVersion means that a job to be planned again is no longer the one that
// was looked at: to submit that would undo what somebody has changed since.
var errOtherVersion = errors.New("somebody has just submitted another version of the job, or stopped it; see if that needs a replan")

func sameVersion(job, registered *api.Job) bool {
	return registered != nil && job.JobModifyIndex != nil && registered.JobModifyIndex != nil &&
		*job.JobModifyIndex == *registered.JobModifyIndex
}

func lostRace(err error) bool { return errors.Is(err, errRace) }

// book plans a job and reserves what the plan takes, in place of what an earlier
// plan of the job had.
func (s *Site) book(ctx context.Context, job *api.Job, options planner.Options, how Submission) (*planner.Plan, error) {
	if !planner.HasAsks(job) {
		return planner.Make(job, planner.Cluster{}, options)
	}
	cluster, err := s.read(ctx, job)
	if err != nil {
		return nil, err
	}
	if options.Replan && !sameVersion(job, cluster.Registered) {
		return nil, errOtherVersion
	}
	plan, err := planner.Make(job, cluster, options)
	if err != nil {
		return nil, err
	}
	if how.CheckIndex != nil && *how.CheckIndex != plan.Index {
		return nil, fmt.Errorf("job %s: %w: it is %d, want %d", *job.ID, ErrIndex, plan.Index, *how.CheckIndex)
	}
	s.release(ctx, planner.Stale(cluster.Table, plan.Space, plan.ID))
	for i, r := range plan.Reservations {
		err := s.table.Reserve(ctx, r.Owner, planner.ReservationTime, r.Rooms)
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

// releaseTime bounds giving back, which is done even after an interrupt.
const releaseTime = 10 * time.Second

// release gives reservations back. Those that it cannot give back now end by
// themselves.
func (s *Site) release(ctx context.Context, reservations []planner.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for _, r := range reservations {
		var gpus []allocator.GPUID
		for _, room := range r.Rooms {
			gpus = append(gpus, room.GPU)
		}
		_ = s.table.Release(ctx, r.Owner, r.Owner.Alloc, gpus)
	}
}
