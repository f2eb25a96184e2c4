// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/injection"
	"nomad-gpu-mem/internal/pause"
)

// StartTask runs a task in a container that sees the GPUs booked for it and no
// others. All of it happens or nothing: from the moment something is taken for the
// task, a failure ends the attempt as DestroyTask would. Starting a task twice
// returns the first start; another start of the same task ends the earlier one.
func (p *Plugin) StartTask(task *drivers.TaskConfig) (*drivers.TaskHandle, *drivers.DriverNetwork, error) {
	return p.startCalled(task, time.Now())
}

// startCalled is StartTask, called by Nomad at that time.
func (p *Plugin) startCalled(task *drivers.TaskConfig, called time.Time) (*drivers.TaskHandle, *drivers.DriverNetwork, error) {
	s, err := p.serving()
	if err != nil {
		return nil, nil, err
	}
	for {
		if h, ok := p.task(task.ID); ok {
			out, err := h.nomadHandle()
			return out, h.network, err
		}
		ctx, end, earlier := p.starts.begin(p.ctx, task)
		if earlier == nil {
			defer end()
			return p.startTask(&start{services: s, ctx: ctx, task: task, called: called})
		}
		select {
		case <-earlier:
		case <-p.ctx.Done():
			return nil, nil, structs.NewRecoverableError(p.ctx.Err(), true)
		}
	}
}

func (p *Plugin) startTask(start *start) (*drivers.TaskHandle, *drivers.DriverNetwork, error) {
	s, task := start.services, start.task
	h, out, err := start.run()
	if err == nil {
		s.adopt(h)
		return out, h.network, nil
	}
	if start.input != nil {
		s.images.Drop(start.input.Image.ID, task.ID, time.Now())
		start.noteFault(err)
	}
	p.announcer.tell(task, "Task was not started: "+err.Error())
	// Nomad looks at the error itself, not at what it wraps.
	return nil, nil, structs.NewRecoverableError(err, recoverable(err))
}

// start is one StartTask under way.
type start struct {
	services *services
	ctx      context.Context
	task     *drivers.TaskConfig
	called   time.Time // when Nomad called
	input    *containerspec.Input
	engine   string         // ID of the Docker engine that runs it
	attempt  attempt.Record // once it has begun
	netFiles []func() error // write the hosts and resolv.conf files
}

// run does the steps in their order. What can fail for the job's own fault comes
// first, what other tasks may have to wait for comes last.
func (s *start) run() (*handle, *drivers.TaskHandle, error) {
	if err := s.prepare(); err != nil {
		// Nomad repeats a call that an earlier process did not answer, and that
		// process may have come further than this one.
		s.tellUndone(s.services.reaper.FinishRecorded(context.WithoutCancel(s.ctx), s.task.ID))
		return nil, nil, err
	}
	_, remarks, err := s.input.Build()
	if err != nil {
		return nil, nil, err
	}
	for _, remark := range remarks {
		s.services.announcer.warn(s.task, remark)
	}
	reaper := s.services.reaper
	s.attempt = attempt.NewRecord(s.task, s.input.Bookings, reaper.BegunAfter(attempt.OwnerOf(s.task), s.called), s.engine)
	if err := reaper.Begin(s.ctx, s.attempt); err != nil {
		return nil, nil, err
	}
	h, out, err := s.launch()
	if err != nil {
		s.tellUndone(reaper.Finish(context.WithoutCancel(s.ctx), s.attempt))
		return nil, nil, err
	}
	return h, out, nil
}

// prepare collects what decides on the container, and has the image brought. It
// takes nothing that would have to be released.
func (s *start) prepare() error {
	job, err := config.DecodeTask(s.task)
	if err != nil {
		return err
	}
	bookings, err := bookingsOf(s.task)
	if err != nil {
		return err
	}
	s.input = &containerspec.Input{Task: s.task, Job: job, Settings: s.services.settings, Bookings: bookings, SharedCPUs: sharedCPUs(s.task)}
	if err := s.chooseInjection(); err != nil {
		return err
	}
	if err := s.planNetworkFiles(); err != nil {
		return err
	}
	if _, _, err := s.input.Build(); err != nil { // before minutes are spent on an image
		return err
	}
	if err := s.findEngine(); err != nil {
		return err
	}
	if err := s.checkGroupNetwork(); err != nil {
		return err
	}
	if err := s.pullImage(); err != nil {
		return err
	}
	return s.writeNetworkFiles()
}

// findEngine notes whose container it will be, and fails if another engine may still
// run the task from an earlier start.
func (s *start) findEngine() (err error) {
	if s.engine == "" { // chooseInjection has not asked: it takes the daemon long to answer
		if s.engine, err = whenBack(s, s.services.engine.ID); err != nil {
			return err
		}
	}
	return s.services.reaper.RefuseElsewhere(attempt.OwnerOf(s.task), s.engine)
}

// whenBack asks the daemon, and waits a little for an unavailable one: a start during its
// restart should not use up the job's own restarts.
func whenBack[T any](s *start, question func(context.Context) (T, error)) (answer T, err error) {
	begun, told := time.Now(), false
	for {
		answer, err = question(s.ctx)
		if !errors.Is(err, docker.ErrUnavailable) || time.Since(begun) >= s.services.pace.recovery {
			return answer, err
		}
		if !told {
			s.services.announcer.tell(s.task, "Waiting for Docker: "+err.Error())
			told = true
		}
		if pause.For(s.ctx, s.services.pace.retry) != nil {
			return answer, err
		}
	}
}

// launch claims the slices and runs the container.
func (s *start) launch() (*handle, *drivers.TaskHandle, error) {
	if err := s.services.finishEarlier(s.ctx, s.attempt); err != nil {
		return nil, nil, err
	}
	if err := s.services.reaper.FinishEarlier(s.ctx, s.attempt); err != nil {
		return nil, nil, err
	}
	if err := s.claim(); err != nil {
		return nil, nil, err
	}
	// Other tasks of the allocation run meanwhile, and what was checked before can be
	// something else by now.
	spec, _, err := s.input.Build()
	if err != nil {
		return nil, nil, err
	}
	if err := s.stageSources(&spec); err != nil {
		return nil, nil, err
	}
	found, err := s.container(spec)
	if err != nil {
		return nil, nil, err
	}
	s.unstage()
	if err := s.markRunning(found.ID); err != nil {
		return nil, nil, err
	}
	h := newHandle(s.services.ctx, s.task, s.input.Bookings, s.engine, found)
	h.begun = s.attempt.Begun
	h.mentions.note(s.called)
	h.seen.Store(true)
	h.pool = s.input.SharedCPUs
	h.network = driverNetwork(s.input.Job, found)
	out, err := h.nomadHandle()
	return h, out, err
}

// tellUndone says so if a failed start could not be taken back at once.
func (s *start) tellUndone(err error) {
	if err != nil {
		s.services.announcer.tell(s.task, "Not all of the failed start could be undone, which will be tried again: "+err.Error())
	}
}

func (s *start) pullImage() (err error) {
	job := s.input.Job
	request := docker.PullRequest{
		Ref:          job.Image,
		Force:        job.ForcePull,
		AuthSoftFail: job.AuthSoftFail,
		Timeout:      job.PullLimit(s.services.settings.PullLimit),
		IdleTimeout:  s.services.settings.PullIdle,
		Progress: func(message string) {
			s.services.announcer.tell(s.task, message, "image", docker.FamiliarName(job.Image))
		},
	}
	if job.Auth != (config.Auth{}) { // also without a user: the pull is anonymous then
		request.Auth = &docker.Auth{
			Username: job.Auth.Username, Password: job.Auth.Password, ServerAddress: job.Auth.ServerAddress,
		}
	}
	if job.Load != "" {
		request.Load = func() (io.ReadCloser, error) { return containerspec.OpenArchive(s.task, job.Load) }
	}
	s.input.Image, err = s.services.images.Ensure(s.ctx, request, s.task.ID)
	return err
}

// container creates and starts the container, or takes the one that an earlier call
// with the same task ID made.
func (s *start) container(spec docker.Spec) (docker.Container, error) {
	engine := s.services.engine
	for range leftoverTries {
		id, err := engine.Create(s.ctx, spec)
		if err != nil {
			return docker.Container{}, containerspec.Blame(err)
		}
		if err := s.services.reaper.CheckBegun(s.attempt); err != nil { // after Create: see there
			return docker.Container{}, err
		}
		err = engine.Start(s.ctx, id)
		if err == nil {
			found, err := engine.Inspect(s.ctx, id)
			if err != nil {
				return docker.Container{}, fmt.Errorf("%w: %w", errUnobserved, err)
			}
			return found, nil
		}
		if !errors.Is(err, docker.ErrLeftover) {
			return docker.Container{}, containerspec.Blame(err)
		}
		if err := engine.Remove(s.ctx, id); err != nil {
			return docker.Container{}, fmt.Errorf("cannot replace a container that cannot start: %w", err)
		}
	}
	return docker.Container{}, fmt.Errorf("%d containers in turn could not start: %w", leftoverTries, docker.ErrLeftover)
}

// leftoverTries is how often another container is made in place of one of which the
// runtime says that it is there already.
const leftoverTries = 5

// errUnobserved: the container was started and could not be looked at, as if it had
// been removed at once. The job is not at fault.
var errUnobserved = errors.New("nothing is known of the container after its start")

// recoverable reports whether a start may succeed later without any change to the
// job. Nomad then tries again on this node, with the same devices.
func recoverable(err error) bool {
	for _, temporary := range []error{allocator.ErrHeld, allocator.ErrUnavailable, allocator.ErrConflict, allocator.ErrSuperseded, context.DeadlineExceeded, errUnobserved, attempt.ErrMayRun, attempt.ErrEnded, injection.ErrNoCDIDevice} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return docker.Recoverable(err)
}
