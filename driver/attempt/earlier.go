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
)

// Nomad starts a task again after it gave up an earlier start, whose container may still run: the agent crashed before it learned
// of the container, the daemon did not end it, or an operator renamed it. Both starts hold the same units, so the later start ends
// all earlier ones before it claims.

// earlierTimeout bounds how long a start waits for the end of an earlier start.
const earlierTimeout = 2 * time.Minute

// FinishEarlier ends the other attempts of a's task: those in the journal, and containers without a record. The error matches
// ErrMayRun if one may still run.
func (r *Reaper) FinishEarlier(ctx context.Context, a Record) error {
	ctx, cancel := context.WithTimeout(ctx, earlierTimeout)
	defer cancel()
	records, _ := r.Journal.All() // the sweeper reports those that it cannot read
	for _, earlier := range records {
		if !earlier.Owner.Is(a.Owner) || earlier.ID == a.ID {
			continue
		}
		// The sweep retries what else failed: this start takes the claim.
		if err := r.FinishRecorded(ctx, earlier.ID); errors.Is(err, ErrMayRun) || ctx.Err() != nil {
			return earlierStart(err)
		}
	}
	containers, err := r.containersOf(ctx, a.Owner)
	if err != nil {
		return earlierStart(fmt.Errorf("%w: %w", ErrMayRun, err))
	}
	for _, c := range containers {
		if c.Labels[label.Attempt] == a.ID {
			continue // made by a call whose answer was lost
		}
		r.logger.Warn("removing the container of an earlier start of a task", "task", a.Owner.String(), "container", c.Name)
		if ended, err := r.endOne(ctx, ctx, c, r.engine.Remove); !ended { // also if ended ones are kept: its name is needed
			return earlierStart(fmt.Errorf("%w: container %s: %w", ErrMayRun, c.Name, err))
		}
	}
	return nil
}

// RefuseElsewhere fails if another engine than the given one may still run an earlier start of the task.
func (r *Reaper) RefuseElsewhere(owner allocator.Owner, engine string) error {
	records, _ := r.Journal.All() // the sweeper reports those that it cannot read
	for _, a := range records {
		if !a.Owner.Is(owner) || a.Engine == "" || a.Engine == engine || r.wentDown(a) {
			continue
		}
		return earlierStart(fmt.Errorf("%w: engine %s, while endpoint leads to %s; restore endpoint, or end the container there and remove %s",
			ErrElsewhere, a.Engine, engine, r.Journal.Path(a.ID)))
	}
	return nil
}

// wentDown reports whether the machine has restarted since the attempt began, and all
// containers of the engine with it, whichever that was.
func (r *Reaper) wentDown(a Record) bool {
	return r.local && r.boot != "" && a.Boot != "" && a.Boot != r.boot
}

func earlierStart(err error) error {
	return fmt.Errorf("an earlier start of the task may still run: %w", err)
}

// containersOf returns the containers of all starts of a task on this engine: this
// driver's, and those of Nomad's own, whose labels differ.
func (r *Reaper) containersOf(ctx context.Context, owner allocator.Owner) ([]docker.Container, error) {
	var all []docker.Container
	seen := map[string]bool{}
	for _, label := range []string{label.Alloc, label.BuiltinAlloc} {
		found, err := r.engine.List(ctx, map[string]string{label: owner.Alloc})
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if !seen[c.ID] && isOf(c, owner) {
				seen[c.ID] = true
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// isOf reports whether a container is a start of the task. Labels can come from an image
// and names can be changed; the directories of the allocation and of the task are mounted
// by the driver alone.
func isOf(c docker.Container, owner allocator.Owner) bool {
	alloc, task := label.StartOf(c)
	return alloc == owner.Alloc && task == owner.Task
}

// UnitsInUse returns a *allocator.HeldError if an attempt of another task on this node may use units of a: one that began
// before a, or one whose container may run, since a start can be late. The table normally says so too; after it was
// wiped or restored, this node's records are more complete.
func (r *Reaper) UnitsInUse(ctx context.Context, a Record) error {
	records, _ := r.Journal.All()
	for _, other := range records {
		held := sharedUnits(a, other)
		if held == nil || other.Owner.Is(a.Owner) || other.Released {
			continue
		}
		if other.Begun.Before(a.Begun) {
			return held
		}
		containers, err := r.containers(ctx, other)
		if err != nil {
			return fmt.Errorf("cannot find out whether %s uses units of this task: %w", other.Owner, err)
		}
		if slices.ContainsFunc(containers, MayRun) {
			return held
		}
	}
	return nil
}

// sharedUnits returns the error for units of a that the other attempt has as well, nil if there are none.
func sharedUnits(a, other Record) error {
	for gpu, units := range a.Units {
		if shared := units.Intersect(other.Units[gpu]); shared.Len() > 0 {
			holder := allocator.Claim{
				Owner: other.Owner, Attempt: other.ID, State: allocator.Running, ClaimedAt: other.Begun, Units: other.Units[gpu],
			}
			return &allocator.HeldError{GPU: gpu, Units: shared, Holders: []allocator.Claim{holder}}
		}
	}
	return nil
}

// BegunAfter returns the time at which a start of the task begins: now, but later than
// all that is recorded of the task, even if the clock was set back.
func (r *Reaper) BegunAfter(owner allocator.Owner, now time.Time) time.Time {
	records, _ := r.Journal.All()
	for _, earlier := range records {
		if earlier.Owner.Is(owner) && !earlier.Begun.Before(now) {
			now = earlier.Begun.Add(time.Millisecond)
		}
	}
	return now
}
