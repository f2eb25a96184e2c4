package driver

import (
	"context"
	"errors"
	"slices"
	"time"

	"nomad-gpu-mem/driver/docker"
)

const (
	// orphanAge is how long Nomad may take to ask for a task whose container has
	// ended. It is also how old an attempt without a container must be to be taken
	// for dead while another process of the plugin may be at work on it: a start
	// claims for claim_timeout at most, and then creates the container.
	orphanAge = 10 * time.Minute
	// residueAge is what a daemon may take to complete what a process had asked of
	// it that is dead by now.
	residueAge = 15 * time.Second
)

// isOver reports whether an attempt that nobody looks after has to be brought to its
// end, though nobody said that it is over.
//
// If this process is the only one, then nobody is at work on the attempt: what has no
// container will never have one, and what has one that never ran will not run. Nomad
// may still repeat the start, which takes custody and claims anew. A container that
// has ended is left for a while to Nomad, which wants to know how. One that runs is the
// dangling loop's business.
func (k *keeper) isOver(ctx context.Context, a attempt, now time.Time) (bool, error) {
	if a.Over {
		return true, nil
	}
	patient := now.Sub(a.Begun) < orphanAge
	if since, alone := k.tenancy.sole(now); alone && now.Sub(since) >= residueAge {
		patient = false
	}
	if patient {
		return false, nil
	}
	containers, err := k.containers(ctx, a)
	if err != nil {
		return false, err
	}
	containers = slices.DeleteFunc(containers, neverRan)
	running := slices.ContainsFunc(containers, func(c docker.Container) bool { return c.Running })
	return len(containers) == 0 || !running && now.Sub(k.since) >= orphanAge, nil
}

func neverRan(c docker.Container) bool { return c.Status == "created" }

// sweep settles the attempts that nobody looks after: those that are over, and those
// whose container is gone because the machine or the plugin went down with it.
func (k *keeper) sweep(ctx context.Context, now time.Time) {
	if err := k.journal.tidy(now); err != nil {
		k.logger.Warn("temporary files in state_dir cannot be removed", "error", err)
	}
	if err := k.checkpoints.sweep(k.journal.list); err != nil {
		k.logger.Warn("log checkpoints of finished tasks cannot be removed from state_dir", "error", err)
	}
	ids, err := k.journal.list()
	if err != nil {
		k.logger.Error("some records of tasks cannot be read; remove them once their claims are released", "error", err)
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		k.complain(id, k.sweepOne(ctx, id, now))
	}
}

// complain tells once why an attempt cannot be brought to its end, for that may last.
func (k *keeper) complain(id string, err error) {
	if err == nil {
		delete(k.complaints, id)
		return
	}
	if k.complaints == nil {
		k.complaints = map[string]string{}
	}
	if k.complaints[id] != err.Error() {
		k.logger.Warn("a task's end is still to be completed", "task_id", id, "error", err)
		k.complaints[id] = err.Error()
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
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if over, err := k.isOver(settling, a, now); err != nil || !over {
		return err
	}
	if err := k.settle(settling, a); err != nil {
		if a.Over && now.Sub(a.Ended) >= stuckAge {
			err = errors.Join(err, k.lookForStuck(ctx, a))
		}
		return err
	}
	k.logger.Info("completed the end of a task", "task", a.Owner.String(), "gpus", a.GPUs)
	return nil
}
