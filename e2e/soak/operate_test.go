// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/e2e/soak/model"
)

// churn runs the operations that the model chooses until ctx ends. It does not wait for an
// answer before the next operation, unless many answers are outstanding.
func (s *soak) churn(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	free := make(chan struct{}, unanswered)
	pace := rand.New(rand.NewPCG(s.seed, 2))
	choice := model.NewChurn(s.seed, churnJobs, mostAsk, churnForms())
	for n := 0; ctx.Err() == nil; n++ {
		next := func() { s.attack(hostileJobs[n/hostileEvery%len(hostileJobs)]) }
		if n%hostileEvery != hostileEvery-1 {
			op := choice.Next()
			next = func() {
				begun := time.Now()
				err := s.operate(op, n)
				s.count(s.report.Operations, string(op.Verb), time.Since(begun), err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}
		asked.Go(func() {
			next()
			<-free
		})
		wait(ctx, time.Duration(100+pace.IntN(900))*time.Millisecond)
	}
}

const (
	churnJobs    = 16 // at a time
	unanswered   = 6  // operations at a time
	hostileEvery = 8  // one of this number of operations submits or ends a hostile job
)

// operate runs one operation and returns once Nomad has answered.
func (s *soak) operate(op model.Operation, revision int) error {
	jobs := s.nomad.Jobs()
	switch op.Verb {
	case model.Start, model.Update:
		return s.submit(op, revision)
	case model.Stop, model.Purge:
		_, _, err := jobs.Deregister(op.Job, op.Verb == model.Purge, nil)
		return err
	case model.Scale:
		_, _, err := jobs.Scale(op.Job, "g", ptr(op.Count), "soak", false, nil, nil)
		return err
	case model.Restart, model.Evict:
		alloc, err := s.anyRunning(op.Job)
		if err != nil {
			return err
		}
		if op.Verb == model.Restart {
			return s.nomad.Allocations().Restart(alloc, "app", nil)
		}
		_, err = s.nomad.Allocations().Stop(alloc, nil)
		return err
	}
	return fmt.Errorf("operation %q is unknown", op.Verb)
}

func (s *soak) submit(op model.Operation, revision int) error {
	f := formOf(op.Form)
	job := f.job(op.Job, op.Request, revision)
	if _, _, err := s.nomad.Jobs().Register(job, nil); err != nil {
		return err
	}
	if job.ParameterizedJob == nil {
		return nil
	}
	_, _, err := s.nomad.Jobs().Dispatch(op.Job, nil, nil, "", nil)
	return err
}

// anyRunning returns an allocation of the job that runs.
func (s *soak) anyRunning(job string) (*api.Allocation, error) {
	allocs, _, err := s.nomad.Jobs().Allocations(job, false, nil)
	if err != nil {
		return nil, err
	}
	for _, stub := range allocs {
		if stub.ClientStatus == api.AllocClientStatusRunning && stub.DesiredStatus == api.AllocDesiredStatusRun {
			alloc, _, err := s.nomad.Allocations().Info(stub.ID, nil)
			return alloc, err
		}
	}
	return nil, errNothing
}

// attack submits a hostile job, or ends it if it exists.
func (s *soak) attack(h hostileJob) {
	name, begun := "hostile-"+slug(h.name), time.Now()
	known, _, err := s.nomad.Jobs().Info(name, nil)
	switch {
	case err == nil && known.Stop != nil && !*known.Stop:
		_, _, err = s.nomad.Jobs().Deregister(name, true, nil)
	default:
		_, _, err = s.nomad.Jobs().Register(h.job(name), nil)
	}
	s.count(s.report.Hostile, h.name, time.Since(begun), err)
}

// stopAll ends and purges every job, and returns once Nomad has accepted that.
func (s *soak) stopAll(ctx context.Context) error {
	for {
		jobs, _, err := s.nomad.Jobs().List(nil)
		failed := []error{err}
		for _, job := range jobs {
			_, _, err := s.nomad.Jobs().Deregister(job.ID, true, nil)
			failed = append(failed, err)
		}
		err = errors.Join(failed...)
		if err == nil && len(jobs) == 0 {
			return nil
		}
		if !wait(ctx, time.Second) {
			return fmt.Errorf("%d jobs are left: %w", len(jobs), errors.Join(err, ctx.Err()))
		}
	}
}

// wait pauses and reports whether ctx is still active.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
