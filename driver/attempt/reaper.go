// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package attempt manages starts of tasks from the moment when something is taken for them until nothing of them is left.
//
// It holds the rule on which the allocation table depends: no claim ends before its container is proven gone. Nothing else in
// the driver releases a claim. Each start is recorded on disk before it claims or creates anything, so the plugin, the agent or
// the machine may die at any moment: the next process finishes what is recorded.
//
//	reaper.go     begins an attempt, and ends it: container removed, claim released, record deleted
//	journal.go    the records, one file each in state_dir
//	locks.go      who works on an attempt in this process
//	instance.go   whether this is the only process of the plugin
//	earlier.go    what a start does about earlier starts of the same task
//	orphans.go    attempts that no start, task or end works on any more; stuck.go: containers that cannot be ended
//	reconcile.go  claims of this node without a task, and node.go: which claims are this node's
//	remarks.go    what the operator should know of this node's GPUs
//	engine.go     what the package needs of Docker and of the table
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/logpipe"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/internal/tellonce"
)

// CleanupTimeout bounds one try to end an attempt. The sweep completes the rest.
const CleanupTimeout = 30 * time.Second

// inspectTimeout bounds the question whether a container still runs.
const inspectTimeout = 10 * time.Second

// Reaper ends attempts: it removes the container, proves that it is gone, and then releases the claim. Nothing else in the
// driver releases claims.
type Reaper struct {
	logger         hclog.Logger
	Journal        Journal
	Checkpoints    logpipe.Checkpoints
	Staging        *staging.Area
	Instance       *InstanceLock
	Locks          *Locks
	Node           *NodeIdentity
	engine         Engine
	table          Table
	Since          time.Time // when this process began
	keepContainers bool      // gc.container = false: stopped containers stay
	boot           string    // ID of this boot of the machine; empty: not known
	local          bool      // the engine runs on this machine

	mu         sync.Mutex
	complaints map[string]tellonce.Last // under mu: what the sweep reported, by attempt; "": of records that it cannot read
}

// Options are the settings that attempts depend on.
type Options struct {
	StateDir       string
	Began          time.Time // when this process began
	Boot           string    // ID of this boot of the machine; empty: not known
	KeepContainers bool      // stopped containers stay
	LocalEngine    bool      // the engine runs on this machine, so none of its containers outlives a boot
}

// NewReaper reads what an earlier process has left about this node. It changes nothing yet.
func NewReaper(logger hclog.Logger, options Options, engine Engine, table Table, area *staging.Area) *Reaper {
	node, err := OpenNode(options.StateDir)
	if err != nil {
		logger.Warn("the node's ID is unknown until the first task starts", "error", err)
	}
	return &Reaper{
		logger:         logger,
		Journal:        OpenJournal(options.StateDir),
		Checkpoints:    logpipe.OpenCheckpoints(options.StateDir),
		Staging:        area,
		Instance:       NewInstanceLock(options.StateDir),
		Locks:          newLocks(),
		Node:           node,
		engine:         engine,
		table:          table,
		Since:          options.Began,
		keepContainers: options.KeepContainers,
		boot:           options.Boot,
		local:          options.LocalEngine,
	}
}

// Begin locks the attempt and records it, before anything is taken for it.
func (r *Reaper) Begin(ctx context.Context, a Record) error {
	r.Node.Learn(a.Owner, a.GPUs)
	if err := r.Locks.Lock(ctx, a.ID); err != nil {
		return err
	}
	a.Boot = r.boot
	if err := r.Journal.Write(a); err != nil {
		r.Locks.Unlock(a.ID)
		return err
	}
	return nil
}

// ErrEnded is returned for a start whose attempt another process of the plugin has ended meanwhile.
var ErrEnded = errors.New("another process of the plugin has ended this start")

// CheckBegun returns ErrEnded if another process of the plugin has ended the attempt, as it does before it starts the task again.
// A start calls it between the creation and the start of its container. The other process marks the record as over, or deletes
// it, and lists the containers afterwards. So either this start sees that it has ended, or the other process removes its
// container.
func (r *Reaper) CheckBegun(a Record) error {
	noted, found, err := r.Journal.Read(a.ID)
	if err == nil && (!found || noted.Over) {
		return ErrEnded
	}
	return err
}

// Finish ends the attempt and unlocks it. If a step fails, the sweep retries it, also after a restart of the plugin. The error
// says what is left to do.
func (r *Reaper) Finish(ctx context.Context, a Record) error {
	defer r.Locks.Unlock(a.ID)
	if !a.Over {
		a.Over, a.Ended, a.Boot = true, time.Now(), cmp.Or(a.Boot, r.boot)
		if err := r.Journal.Write(a); err != nil {
			r.logger.Error("cannot record the end of a task", "task_id", a.ID, "error", err)
		}
	}
	return r.cleanUp(ctx, a)
}

// FinishUnowned locks and ends an attempt.
func (r *Reaper) FinishUnowned(ctx context.Context, a Record) error {
	if err := r.Locks.Lock(ctx, a.ID); err != nil {
		return err
	}
	return r.Finish(ctx, a)
}

// FinishRecorded locks and ends the attempt with this ID. It does nothing if there is no record: that attempt has ended.
func (r *Reaper) FinishRecorded(ctx context.Context, id string) error {
	if err := r.Locks.Lock(ctx, id); err != nil {
		return err
	}
	a, found, err := r.Journal.Read(id)
	if err != nil || !found {
		r.Locks.Unlock(id)
		return err
	}
	return r.Finish(ctx, a)
}

var (
	// ErrMayRun is returned while a container may still use its GPUs: its claim stays.
	ErrMayRun = errors.New("the container is not gone, so its claim stays")
	// errNotRemoved is returned when the claim is released and only the ended container is left.
	errNotRemoved = errors.New("the container has ended and its claim is released, but Docker does not remove it")
)

// cleanUp does what is left to do for an attempt. It can be repeated. The claim does not wait for the removal of a container
// that has ended, since that uses no GPU memory.
func (r *Reaper) cleanUp(ctx context.Context, a Record) error {
	left, err := r.clear(ctx, a)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMayRun, err)
	}
	if err := r.releaseClaims(ctx, a); err != nil {
		return err
	}
	if left == nil {
		return errors.Join(r.Checkpoints.Remove(a.ID), r.Staging.Remove(a.ID), r.Journal.Remove(a.ID))
	}
	return fmt.Errorf("%w: %w", errNotRemoved, errors.Join(left, r.noteReleased(a)))
}

// releaseEnded releases the claims of an attempt whose container has ended, and keeps the container.
func (r *Reaper) releaseEnded(ctx context.Context, a Record) error {
	if err := r.releaseClaims(ctx, a); err != nil {
		return err
	}
	return r.noteReleased(a)
}

func (r *Reaper) noteReleased(a Record) error {
	if a.Released {
		return nil
	}
	a.Released = true
	return r.Journal.Write(a)
}

// releaseClaims releases the attempt's claims.
func (r *Reaper) releaseClaims(ctx context.Context, a Record) error {
	if len(a.GPUs) == 0 || a.Released {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	if err := r.table.Release(ctx, a.Owner, a.ID, a.GPUs); err != nil {
		return fmt.Errorf("the GPU memory of %s is not released yet, which will be retried: %w", a.Owner, err)
	}
	return nil
}

// clear ensures that no container of the attempt runs. It finds containers by label, since the plugin may have died before it
// learned an ID. left says why a container that has ended could not be removed; err, why one may still run.
func (r *Reaper) clear(ctx context.Context, a Record) (left, err error) {
	clearing, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	containers, err := r.containers(clearing, a)
	if err != nil {
		return nil, err
	}
	return r.removeAll(ctx, clearing, containers)
}

// removeAll removes containers within the time of clearing, or only stops them if
// stopped ones are to stay. Its results are those of clear.
func (r *Reaper) removeAll(ctx, clearing context.Context, containers []docker.Container) (left, err error) {
	for _, c := range containers {
		end := r.engine.Remove
		if r.keepContainers {
			end = r.stop
		}
		ended, failed := r.endOne(ctx, clearing, c, end)
		switch {
		case failed == nil:
		case ended:
			left = errors.Join(left, fmt.Errorf("container %s: %w", c.Name, failed))
		default:
			err = errors.Join(err, fmt.Errorf("container %s: %w", c.Name, failed))
		}
	}
	return left, err
}

func (r *Reaper) stop(ctx context.Context, id string) error { return r.engine.Stop(ctx, id, "", 0) }

// endOne stops or removes one container. If that fails, ended reports whether the container is known to have ended. A container
// that never ran may still start, since the daemon can be slow.
func (r *Reaper) endOne(
	ctx, clearing context.Context, c docker.Container, end func(context.Context, string) error,
) (ended bool, err error) {
	err = end(clearing, c.ID)
	if err == nil || errors.Is(err, docker.ErrNotFound) {
		return true, nil
	}
	asking, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	now, unknown := r.engine.Inspect(asking, c.ID)
	if errors.Is(unknown, docker.ErrNotFound) {
		return true, nil
	}
	return unknown == nil && !MayRun(now), err
}

// containers returns the attempt's containers. It fails if another engine answers than the one that has them, whose answer would
// prove nothing.
func (r *Reaper) containers(ctx context.Context, a Record) ([]docker.Container, error) {
	err := SameEngine(ctx, r.engine, a.Engine)
	if errors.Is(err, ErrElsewhere) && r.wentDown(a) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w; if that engine is gone for good, release the claim with `nomad-gpu-mem release` and remove %s",
			err, r.Journal.Path(a.ID))
	}
	all, err := r.engine.List(ctx, map[string]string{label.Attempt: a.ID})
	all = slices.DeleteFunc(all, func(c docker.Container) bool { return !label.Ours(c) })
	if err != nil || a.Container == "" {
		return all, err
	}
	taken, err := r.engine.Inspect(ctx, a.Container)
	if errors.Is(err, docker.ErrNotFound) {
		return all, nil
	}
	return append(all, taken), err
}
