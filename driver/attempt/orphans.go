// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/tellonce"
)

const (
	// orphanAge is how long Nomad may take to ask for a task whose container has
	// ended.
	orphanAge = 10 * time.Minute
	// ResidueAge is what a daemon may take to complete what a process had asked of
	// it that is dead by now.
	ResidueAge = 15 * time.Second
)

// fate is what the sweep decides about an attempt that no start, task or end keeps.
type fate int

const (
	undecided fate = iota
	ended          // its container has ended, and Nomad may still ask how
	over           // it must be ended
)

// fateOf decides what to do about an attempt that is not recorded as over.
//
// Only the sole process of the plugin decides, since an earlier one may still be in the start. From then on, an attempt without
// a container never gets one, and a container that never ran does not run. If Nomad repeats the start, that locks the attempt and
// claims again. A container that has ended is kept for a while for Nomad, which asks how it ended; its units are released at once.
// The dangling loop deals with a container that runs.
func (r *Reaper) fateOf(ctx context.Context, a Record, now time.Time) (fate, error) {
	if a.Over {
		return over, nil
	}
	if since, sole := r.Instance.Sole(now); !sole || now.Sub(since) < ResidueAge {
		return undecided, nil
	}
	containers, err := r.containers(ctx, a)
	if err != nil {
		return undecided, err
	}
	containers = slices.DeleteFunc(containers, neverRan)
	switch {
	case slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running }):
		return undecided, nil
	case len(containers) == 0 || now.Sub(r.Since) >= orphanAge:
		return over, nil
	default:
		return ended, nil
	}
}

func neverRan(c docker.Container) bool { return c.Status == "created" }

// IsResidue reports whether a container that has ended can be removed: its attempt has no record, and Nomad had time to ask how it
// ended.
func (r *Reaper) IsResidue(c docker.Container, now time.Time) bool {
	if r.keepContainers || c.Labels[label.Attempt] == "" || now.Sub(r.Since) < orphanAge {
		return false
	}
	_, known, err := r.Journal.Read(c.Labels[label.Attempt])
	return !known && err == nil
}

// MayRun reports whether a container is not known to have ended.
func MayRun(c docker.Container) bool { return c.Running || neverRan(c) }

// Sweep ends the attempts that no start, task or end keeps: those that are over, and those whose container is gone since the
// machine or the plugin went down.
func (r *Reaper) Sweep(ctx context.Context, now time.Time) {
	if err := r.Journal.tidy(now); err != nil {
		r.logger.Warn("temporary files in state_dir cannot be removed", "error", err)
	}
	if err := r.Checkpoints.Sweep(r.Journal.List); err != nil {
		r.logger.Warn("log checkpoints of finished tasks cannot be removed from state_dir", "error", err)
	}
	if err := r.Staging.Sweep(r.Journal.List); err != nil {
		r.logger.Warn("mounts of finished tasks cannot be removed from state_dir", "error", err)
	}
	ids, err := r.Journal.List()
	if r.isNews("", err) {
		r.logger.Error("some records of tasks cannot be read; the claims of those whose containers are gone are released all the same", "error", err)
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		r.complain(id, r.Retry(ctx, id, now))
	}
}

// complain logs why an attempt cannot be ended, once for each reason, since that may last.
func (r *Reaper) complain(id string, err error) {
	if r.isNews(id, err) {
		r.logger.Warn("cannot complete the end of a task yet", "task_id", id, "error", err)
	}
}

// isNews notes the outcome of a try, and reports whether it is another error than before.
func (r *Reaper) isNews(id string, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.complaints[id]
	isNew, _ := last.NoteError(err)
	if err == nil {
		delete(r.complaints, id)
		return false
	}
	if r.complaints == nil {
		r.complaints = map[string]tellonce.Last{}
	}
	r.complaints[id] = last
	return isNew
}

// Retry does for one attempt what Sweep does for each. It skips one that is locked.
func (r *Reaper) Retry(ctx context.Context, id string, now time.Time) error {
	looking, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	if !r.Locks.LockBriefly(looking, id) {
		return nil
	}
	defer r.Locks.Unlock(id)
	a, found, err := r.Journal.Read(id) // again, now that it is locked
	if err != nil || !found {
		return err
	}
	if err := r.unstage(a, now); err != nil {
		return err
	}
	switch is, err := r.fateOf(looking, a, now); {
	case err != nil || is == undecided:
		return err
	case is == ended:
		return r.releaseEnded(ctx, a)
	}
	if err := r.cleanUp(ctx, a); err != nil {
		if a.Over && now.Sub(a.Ended) >= StuckAge {
			err = errors.Join(err, r.MarkStuck(ctx, a))
		}
		return err
	}
	r.logger.Info("completed the end of a task", "task", a.Owner.String(), "gpus", a.GPUs)
	return nil
}

// unstage removes the mounts of a start that ended with its process. Until then Nomad cannot remove the allocation's directory,
// and it tries only once. A container that the daemon is about to start then fails to start, and no process waits for it.
func (r *Reaper) unstage(a Record, now time.Time) error {
	if _, sole := r.Instance.Sole(now); !sole {
		return nil
	}
	return r.Staging.Remove(a.ID)
}

// IsElsewhere reports whether the container belongs to a task of another Nomad node that uses the same engine: only that node's
// agent knows whether the task runs. A container without a node's label is of an older version. A container that is recorded here
// is this node's, started before its agent lost its data_dir and got another ID.
func (r *Reaper) IsElsewhere(c docker.Container) bool {
	node := allocator.NodeID(c.Labels[label.Node])
	if node == "" || node == r.Node.ID() {
		return false
	}
	if _, recorded, _ := r.Journal.Read(c.Labels[label.Attempt]); recorded {
		return false
	}
	err := fmt.Errorf("container %s belongs to node %s, and this is node %s: if no agent has that ID any more, "+
		"for example since its data_dir was removed, end the container with `docker rm --force %s`", c.Name, node, r.Node.ID(), c.ID)
	if r.isNews(c.ID, err) {
		r.logger.Info("leaving a container of another node alone", "reason", err)
	}
	return true
}

// Allocs returns the allocations that have attempts.
func (r *Reaper) Allocs() (map[string]bool, error) {
	ids, err := r.Journal.List()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, id := range ids {
		if a, found, err := r.Journal.Read(id); err == nil && found {
			used[a.Owner.Alloc] = true
		}
	}
	return used, nil
}
