package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
)

const (
	// settleTimeout bounds one try to bring an attempt to its end. What is not
	// done by then is done by the sweeper.
	settleTimeout = 30 * time.Second
	// orphanAge is how old an attempt without a container must be before it is
	// taken for dead, if nobody said that it is over. A start takes less: it
	// claims for claim_timeout at most, and then creates the container.
	orphanAge = 10 * time.Minute
)

// keeper brings attempts to their end: the container removed, its end proven, the
// claim given back. It is the only place that releases claims.
type keeper struct {
	logger         hclog.Logger
	journal        journal
	custody        *custody
	engine         Containers
	table          Table
	since          time.Time // when this process began
	keepContainers bool      // gc.container = false: stopped containers stay
}

// begin notes the attempt before anything is taken for it, and takes custody of it.
func (k *keeper) begin(ctx context.Context, a attempt) error {
	if err := k.custody.take(ctx, a.ID); err != nil {
		return err
	}
	if err := k.journal.write(a); err != nil {
		k.custody.giveUp(a.ID)
		return err
	}
	return nil
}

// end brings the attempt to its end and gives up custody. If that does not succeed
// at once, the sweeper goes on with it, also after a restart; the error says what
// is still to be done.
func (k *keeper) end(ctx context.Context, a attempt) error {
	defer k.custody.giveUp(a.ID)
	a.Over = true
	if err := k.journal.write(a); err != nil {
		k.logger.Error("the end of a task could not be noted", "task_id", a.ID, "error", err)
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return k.settle(ctx, a)
}

// bury ends an attempt that nobody looks after.
func (k *keeper) bury(ctx context.Context, a attempt) error {
	if err := k.custody.take(ctx, a.ID); err != nil {
		return err
	}
	return k.end(ctx, a)
}

// endEarlier ends what an earlier process of the plugin left of an attempt, if it
// left anything.
func (k *keeper) endEarlier(ctx context.Context, id string) error {
	a, found, err := k.journal.read(id)
	if err != nil || !found {
		return err
	}
	return k.bury(ctx, a)
}

// settle does what is left to do for an attempt. It can be repeated.
func (k *keeper) settle(ctx context.Context, a attempt) error {
	if err := k.clear(ctx, a); err != nil {
		return fmt.Errorf("the container is not gone, so its claim stays: %w", err)
	}
	if len(a.GPUs) > 0 {
		if err := k.table.Release(ctx, a.Owner, a.ID, a.GPUs); err != nil {
			return fmt.Errorf("the GPU memory of %s is not given back yet, which will be tried again: %w", a.Owner, err)
		}
	}
	return k.journal.remove(a.ID)
}

// clear makes sure that no container of the attempt runs. The label is what counts:
// it finds the container even if the plugin died before it learned the ID.
func (k *keeper) clear(ctx context.Context, a attempt) error {
	containers, err := k.engine.List(ctx, map[string]string{labelAttempt: a.ID})
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range containers {
		if k.keepContainers {
			err = k.engine.Stop(ctx, c.ID, "", 0)
		} else {
			err = k.engine.Remove(ctx, c.ID)
		}
		if err != nil && !errors.Is(err, docker.ErrNotFound) {
			failed = append(failed, fmt.Errorf("container %s: %w", c.Name, err))
		}
	}
	return errors.Join(failed...)
}

// isOver reports whether an attempt that nobody looks after has to be brought to its
// end. If nobody said so, it must be old enough, and its container must be gone, or
// else have stopped and not been asked for since this process began. A container
// that runs is the dangling loop's business.
func (k *keeper) isOver(ctx context.Context, a attempt, now time.Time) (bool, error) {
	if a.Over {
		return true, nil
	}
	if now.Sub(a.Begun) < orphanAge {
		return false, nil
	}
	containers, err := k.engine.List(ctx, map[string]string{labelAttempt: a.ID})
	if err != nil || len(containers) == 0 {
		return err == nil, err
	}
	running := slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running })
	return !running && now.Sub(k.since) >= orphanAge, nil
}

// sweep settles the attempts that nobody looks after: those that are over, and those
// whose container is gone because the machine or the plugin went down with it.
func (k *keeper) sweep(ctx context.Context, now time.Time) {
	ids, err := k.journal.list()
	if err != nil {
		k.logger.Error("some records of tasks cannot be read; remove them once their claims are released", "error", err)
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		if err := k.sweepOne(ctx, id, now); err != nil {
			k.logger.Warn("a task's end is still to be completed", "task_id", id, "error", err)
		}
	}
}

func (k *keeper) sweepOne(ctx context.Context, id string, now time.Time) error {
	if !k.custody.try(id) {
		return nil
	}
	defer k.custody.giveUp(id)
	a, found, err := k.journal.read(id) // as it is now that nobody else has it
	if err != nil || !found {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if over, err := k.isOver(ctx, a, now); err != nil || !over {
		return err
	}
	if err := k.settle(ctx, a); err != nil {
		return err
	}
	k.logger.Info("completed the end of a task", "task", a.Owner.String(), "gpus", a.GPUs)
	return nil
}

// attemptOf is what the journal keeps of a task's start.
func attemptOf(o *order, now time.Time) attempt {
	return attempt{ID: o.task.ID, Owner: ownerOf(o.task), GPUs: gpusOf(o.bookings), Begun: now}
}

// recoverable reports whether a start may succeed later without any change to the
// job. Nomad then tries again on this node, with the same devices.
func recoverable(err error) bool {
	for _, temporary := range []error{allocator.ErrHeld, allocator.ErrUnavailable, allocator.ErrConflict, context.DeadlineExceeded} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return docker.Recoverable(err)
}
