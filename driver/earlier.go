// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

// Nomad starts a task again when it has given up the earlier start, whatever became of
// that. The container of the earlier start may still run: Nomad's agent crashed before it
// learned of the container, the daemon did not end it, or an operator renamed it. Two starts
// of a task hold the same units, so the later one ends all earlier ones before it claims.

// earlierTimeout bounds how long a start waits for the end of an earlier one, which may
// be under way.
const earlierTimeout = 2 * time.Minute

// endEarlier ends the other attempts of a's task: those in the journal, and containers
// that the journal does not know. The error matches errMayRun if one may still run.
func (k *keeper) endEarlier(ctx context.Context, a attempt) error {
	ctx, cancel := context.WithTimeout(ctx, earlierTimeout)
	defer cancel()
	records, _ := k.journal.all() // the sweeper reports those that it cannot read
	for _, earlier := range records {
		if !earlier.Owner.Is(a.Owner) || earlier.ID == a.ID {
			continue
		}
		// What else fails is left to the sweeper: the claim is taken over.
		if err := k.endRecorded(ctx, earlier.ID); errors.Is(err, errMayRun) || ctx.Err() != nil {
			return earlierStart(err)
		}
	}
	containers, err := k.containersOf(ctx, a.Owner)
	if err != nil {
		return earlierStart(fmt.Errorf("%w: %w", errMayRun, err))
	}
	for _, c := range containers {
		if c.Labels[labelAttempt] == a.ID {
			continue // made by a call whose answer was lost
		}
		k.logger.Warn("removing the container of an earlier start of a task", "task", a.Owner.String(), "container", c.Name)
		if ended, err := k.endOne(ctx, ctx, c, k.engine.Remove); !ended { // also if ended ones are kept: its name is needed
			return earlierStart(fmt.Errorf("%w: container %s: %w", errMayRun, c.Name, err))
		}
	}
	return nil
}

// refuseElsewhere fails if a start of a task is not at its end in another engine than the
// given one.
func (k *keeper) refuseElsewhere(owner allocator.Owner, engine string) error {
	records, _ := k.journal.all() // the sweeper reports those that it cannot read
	for _, a := range records {
		if !a.Owner.Is(owner) || a.Engine == "" || a.Engine == engine || k.wentDown(a) {
			continue
		}
		return earlierStart(fmt.Errorf("%w: engine %s, while endpoint leads to %s; lead it back, or end the container there and remove %s",
			errElsewhere, a.Engine, engine, k.journal.path(a.ID)))
	}
	return nil
}

// wentDown reports whether the machine has restarted since the attempt began, and all
// containers of the engine with it, whichever that was.
func (k *keeper) wentDown(a attempt) bool {
	return k.local && k.boot != "" && a.Boot != "" && a.Boot != k.boot
}

func earlierStart(err error) error {
	return fmt.Errorf("an earlier start of the task may still run: %w", err)
}

// containersOf returns the containers of all starts of a task on this engine: this
// driver's, and those of Nomad's own, whose labels differ.
func (k *keeper) containersOf(ctx context.Context, owner allocator.Owner) ([]docker.Container, error) {
	var all []docker.Container
	seen := map[string]bool{}
	for _, label := range []string{labelAlloc, builtinAlloc} {
		found, err := k.engine.List(ctx, map[string]string{label: owner.Alloc})
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
	alloc, task := startOf(c)
	return alloc == owner.Alloc && task == owner.Task
}

// unitsInUse returns a *allocator.HeldError if an attempt of another task on this node may use units of a: one that began
// before a, or one whose container may run, since a start can be late. The table says so too, unless it was wiped or
// restored: then this node still knows better.
func (k *keeper) unitsInUse(ctx context.Context, a attempt) error {
	records, _ := k.journal.all()
	for _, other := range records {
		held := sharedUnits(a, other)
		if held == nil || other.Owner.Is(a.Owner) || other.Released {
			continue
		}
		if other.Begun.Before(a.Begun) {
			return held
		}
		containers, err := k.containers(ctx, other)
		if err != nil {
			return fmt.Errorf("whether %s uses units of this task: %w", other.Owner, err)
		}
		if slices.ContainsFunc(containers, mayRun) {
			return held
		}
	}
	return nil
}

// sharedUnits returns the error for units of a that the other attempt has as well, nil if there are none.
func sharedUnits(a, other attempt) error {
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

// begunAfter returns the time at which a start of the task begins: now, but later than
// all that is recorded of the task, even if the clock was set back.
func (k *keeper) begunAfter(owner allocator.Owner, now time.Time) time.Time {
	records, _ := k.journal.all()
	for _, earlier := range records {
		if earlier.Owner.Is(owner) && !earlier.Begun.Before(now) {
			now = earlier.Begun.Add(time.Millisecond)
		}
	}
	return now
}
