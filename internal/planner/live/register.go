// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/internal/planner"
)

// Submission is how a job is submitted.
type Submission struct {
	// CheckIndex is the JobModifyIndex that the registered job must have; 0 means that the
	// job must not be registered, nil accepts any.
	CheckIndex *uint64

	PolicyOverride bool // of soft mandatory Sentinel policies

	// Source is the job's file, for Nomad's UI; may be nil.
	Source *api.JobSubmission

	// Detach ends Run as soon as Nomad has accepted the job. Reservations stay until they
	// expire.
	Detach bool

	// Follow waits for the end of the deployment.
	Follow bool

	// Placed is called once the evaluation has ended or, with Detach, once Nomad has
	// accepted the job; Progress whenever the followed deployment changes. Both may be nil.
	Placed   func(*Report)
	Progress func(Deployment)
}

// ErrIndex is returned when the registered job has another index than
// Submission.CheckIndex.
var ErrIndex = errors.New("job is registered with another index")

// registration is a request to register a job. The job is JSON, so that fields that
// this program does not know reach Nomad.
type registration struct {
	Job            json.RawMessage
	Submission     *api.JobSubmission `json:",omitempty"`
	EnforceIndex   bool               `json:",omitempty"`
	JobModifyIndex uint64             `json:",omitempty"`
	PolicyOverride bool               `json:",omitempty"`
	PreserveCounts bool               `json:",omitempty"`
}

// register submits a planned job, unless the registered job changed since it was planned.
func (s *Site) register(ctx context.Context, job *planner.Document, plan *planner.Plan, options planner.Options, how Submission) (*api.JobRegisterResponse, error) {
	text, err := patched(job, plan)
	if err != nil {
		return nil, err
	}
	request := registration{
		Job: text, Submission: how.Source, PolicyOverride: how.PolicyOverride, PreserveCounts: options.PreserveCounts,
		EnforceIndex: len(plan.Groups) > 0 || how.CheckIndex != nil, JobModifyIndex: plan.Index,
	}
	if how.CheckIndex != nil {
		request.JobModifyIndex = *how.CheckIndex
	}
	var answer api.JobRegisterResponse
	w := (&api.WriteOptions{Namespace: plan.Space}).WithContext(ctx)
	if _, err := s.nomad.Raw().Write("/v1/jobs", &request, &answer, w); err != nil {
		switch {
		case !strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix):
		case how.CheckIndex != nil:
			err = fmt.Errorf("%w than %d: %w", ErrIndex, *how.CheckIndex, err)
		default:
			err = fmt.Errorf("%w: %w", errRace, err)
		}
		return nil, nomadFailed("register job "+plan.ID, err)
	}
	return &answer, nil
}

// patched returns the JSON of a job with its plan.
func patched(job *planner.Document, plan *planner.Plan) (json.RawMessage, error) {
	operations, err := job.Patch(plan)
	if err != nil {
		return nil, err
	}
	return job.Apply(operations)
}

// stored returns a registered job's JSON.
func (s *Site) stored(ctx context.Context, space, id string) (json.RawMessage, error) {
	var text json.RawMessage
	q := (&api.QueryOptions{Namespace: space}).WithContext(ctx)
	if _, err := s.nomad.Raw().Query("/v1/job/"+url.PathEscape(id), &text, q); err != nil {
		return nil, nomadFailed("read job "+id, err)
	}
	return text, nil
}

// source returns the file that a registered job was submitted with, nil if there is
// none.
func (s *Site) source(ctx context.Context, job *api.Job) (*api.JobSubmission, error) {
	if job.Version == nil {
		return nil, nil
	}
	q := (&api.QueryOptions{Namespace: namespace(job)}).WithContext(ctx)
	source, _, err := s.nomad.Jobs().Submission(*job.ID, int(*job.Version), q)
	if notFound(err) {
		return nil, nil
	}
	return source, nomadFailed("read the source of job "+*job.ID, err)
}
