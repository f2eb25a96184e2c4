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

// settleTimeout bounds one try to bring an attempt to its end. What is not done by then
// is done by the sweeper.
const settleTimeout = 30 * time.Second

// keeper brings attempts to their end: the container removed, its end proven, the
// claim given back. It is the only place that releases claims.
type keeper struct {
	logger         hclog.Logger
	journal        journal
	checkpoints    checkpoints
	tenancy        *tenancy
	custody        *custody
	home           *home
	engine         Containers
	table          Table
	since          time.Time         // when this process began
	keepContainers bool              // gc.container = false: stopped containers stay
	complaints     map[string]string // of the sweep, by attempt
}

// begin notes the attempt before anything is taken for it, and takes custody of it.
func (k *keeper) begin(ctx context.Context, a attempt) error {
	k.home.learn(a.Owner, a.GPUs)
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
	a.Over, a.Ended = true, time.Now()
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
	return errors.Join(k.checkpoints.remove(a.ID), k.journal.remove(a.ID))
}

// clear makes sure that no container of the attempt runs. Its label is what counts: it
// finds the container even if the plugin died before it learned the ID.
func (k *keeper) clear(ctx context.Context, a attempt) error {
	containers, err := k.containers(ctx, a)
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

// containers returns those of the attempt, as the engine tells that has them. No
// other's word counts.
func (k *keeper) containers(ctx context.Context, a attempt) ([]docker.Container, error) {
	if err := sameEngine(ctx, k.engine, a.Engine); err != nil {
		return nil, fmt.Errorf("%w; if that engine is gone for good, release the claim with `nomad-gpu-mem release` and remove %s",
			err, k.journal.path(a.ID))
	}
	all, err := k.engine.List(ctx, map[string]string{labelAttempt: a.ID})
	all = slices.DeleteFunc(all, func(c docker.Container) bool { return !ours(c) })
	if err != nil || a.Container == "" {
		return all, err
	}
	taken, err := k.engine.Inspect(ctx, a.Container)
	if errors.Is(err, docker.ErrNotFound) {
		return all, nil
	}
	return append(all, taken), err
}

// refuseElsewhere fails if an earlier start of a task is not at its end in another
// engine than the given one.
func (k *keeper) refuseElsewhere(owner allocator.Owner, engine string) error {
	ids, _ := k.journal.list() // what cannot be read is told by the sweeper
	for _, id := range ids {
		a, found, err := k.journal.read(id)
		if err != nil || !found || !a.Owner.Is(owner) || a.Engine == "" || a.Engine == engine {
			continue
		}
		return fmt.Errorf("an earlier start of the task may still run: %w: engine %s, while endpoint leads to %s; "+
			"lead it back, or end the container there and remove %s", errElsewhere, a.Engine, engine, k.journal.path(id))
	}
	return nil
}

// recoverable reports whether a start may succeed later without any change to the
// job. Nomad then tries again on this node, with the same devices.
func recoverable(err error) bool {
	for _, temporary := range []error{allocator.ErrHeld, allocator.ErrUnavailable, allocator.ErrConflict, context.DeadlineExceeded, errUnobserved} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return docker.Recoverable(err)
}
