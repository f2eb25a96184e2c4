// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"slices"
	"time"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/tellonce"
)

const (
	// orphanAge is how long Nomad may take to ask for a task whose container has
	// ended.
	orphanAge = 10 * time.Minute
	// residueAge is what a daemon may take to complete what a process had asked of
	// it that is dead by now.
	residueAge = 15 * time.Second
)

// fate is what is known of an attempt that no start, task or end keeps.
type fate int

const (
	undecided fate = iota
	ended          // its container has ended, and Nomad may still ask how
	over           // it has to be brought to its end
)

// fateOf finds out whether an attempt has to be brought to its end, though it is not known to be over.
//
// Only the sole process of the plugin decides that: an earlier one may still be in the
// start. What has no container then will never have one, and what has one that never
// ran will not run. Nomad may still repeat the start, which takes custody and claims
// again. A container that has ended is left for a while to Nomad, which wants to know
// how; it holds no units any more. One that runs is the dangling loop's business.
func (k *keeper) fateOf(ctx context.Context, a attempt, now time.Time) (fate, error) {
	if a.Over {
		return over, nil
	}
	if since, sole := k.tenancy.sole(now); !sole || now.Sub(since) < residueAge {
		return undecided, nil
	}
	containers, err := k.containers(ctx, a)
	if err != nil {
		return undecided, err
	}
	containers = slices.DeleteFunc(containers, neverRan)
	switch {
	case slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running }):
		return undecided, nil
	case len(containers) == 0 || now.Sub(k.since) >= orphanAge:
		return over, nil
	default:
		return ended, nil
	}
}

func neverRan(c docker.Container) bool { return c.Status == "created" }

// isResidue reports whether a container that has ended is of no use to anyone: no record
// knows its attempt, and Nomad had the time to ask how it ended.
func (k *keeper) isResidue(c docker.Container, now time.Time) bool {
	if k.keepContainers || c.Labels[label.Attempt] == "" || now.Sub(k.since) < orphanAge {
		return false
	}
	_, known, err := k.journal.read(c.Labels[label.Attempt])
	return !known && err == nil
}

// mayRun reports whether a container is not known to have ended.
func mayRun(c docker.Container) bool { return c.Running || neverRan(c) }

// sweep settles the attempts that nobody looks after: those that are over, and those
// whose container is gone because the machine or the plugin went down with it.
func (k *keeper) sweep(ctx context.Context, now time.Time) {
	if err := k.journal.tidy(now); err != nil {
		k.logger.Warn("temporary files in state_dir cannot be removed", "error", err)
	}
	if err := k.checkpoints.Sweep(k.journal.list); err != nil {
		k.logger.Warn("log checkpoints of finished tasks cannot be removed from state_dir", "error", err)
	}
	if err := k.staging.Sweep(k.journal.list); err != nil {
		k.logger.Warn("mounts of finished tasks cannot be removed from state_dir", "error", err)
	}
	ids, err := k.journal.list()
	if k.isNews("", err) {
		k.logger.Error("some records of tasks cannot be read; the claims of those whose containers are gone are released all the same", "error", err)
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		k.complain(id, k.sweepOne(ctx, id, now))
	}
}

// complain reports why an attempt cannot be brought to its end, and repeats nothing: that
// may last.
func (k *keeper) complain(id string, err error) {
	if k.isNews(id, err) {
		k.logger.Warn("a task's end is still to be completed", "task_id", id, "error", err)
	}
}

// isNews notes the outcome of a try, and reports whether it is an error that differs from
// the one before.
func (k *keeper) isNews(id string, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.complaints[id]
	isNew, _ := last.NoteError(err)
	if err == nil {
		delete(k.complaints, id)
		return false
	}
	if k.complaints == nil {
		k.complaints = map[string]tellonce.Last{}
	}
	k.complaints[id] = last
	return isNew
}

func (k *keeper) sweepOne(ctx context.Context, id string, now time.Time) error {
	looking, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if !k.custody.look(looking, id) {
		return nil
	}
	defer k.custody.giveUp(id)
	a, found, err := k.journal.read(id) // as it is now that nobody else has it
	if err != nil || !found {
		return err
	}
	if err := k.unstage(a, now); err != nil {
		return err
	}
	switch is, err := k.fateOf(looking, a, now); {
	case err != nil || is == undecided:
		return err
	case is == ended:
		return k.release(ctx, a)
	}
	if err := k.settle(ctx, a); err != nil {
		if a.Over && now.Sub(a.Ended) >= stuckAge {
			err = errors.Join(err, k.lookForStuck(ctx, a))
		}
		return err
	}
	k.logger.Info("completed the end of a task", "task", a.Owner.String(), "gpus", a.GPUs)
	return nil
}

// unstage removes what a start has staged that was cut short by the end of its process. Nomad cannot remove the
// allocation's directory until then, and tries once only. A container that the daemon is about to start does not start
// then: no process waits for it.
func (k *keeper) unstage(a attempt, now time.Time) error {
	if _, sole := k.tenancy.sole(now); !sole {
		return nil
	}
	return k.staging.Remove(a.ID)
}
