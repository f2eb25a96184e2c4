// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/internal/boot"
	"nomad-gpu-mem/internal/tellonce"
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
	staging        *staging.Area
	tenancy        *tenancy
	custody        *custody
	home           *home
	engine         Containers
	table          Table
	since          time.Time // when this process began
	keepContainers bool      // gc.container = false: stopped containers stay
	boot           string    // ID of this boot of the machine; empty: not known
	local          bool      // the engine runs on this machine

	mu         sync.Mutex
	complaints map[string]tellonce.Last // under mu: what the sweep reported, by attempt; "": of records that it cannot read
}

func newKeeper(logger hclog.Logger, s settings, engine Containers, table Table, area *staging.Area) *keeper {
	node := openHome(s.StateDir)
	if node.unread != nil {
		logger.Warn("the node's ID is unknown until the first task starts", "error", node.unread)
	}
	return &keeper{
		logger:         logger,
		journal:        openJournal(s.StateDir),
		checkpoints:    openCheckpoints(s.StateDir),
		staging:        area,
		tenancy:        newTenancy(s.StateDir),
		custody:        newCustody(),
		home:           node,
		engine:         engine,
		table:          table,
		since:          time.Now(),
		keepContainers: !s.GC.Container,
		boot:           boot.ID(),
		local:          isLocal(s.Endpoint),
	}
}

// begin notes the attempt before anything is taken for it, and takes custody of it.
func (k *keeper) begin(ctx context.Context, a attempt) error {
	k.home.learn(a.Owner, a.GPUs)
	if err := k.custody.take(ctx, a.ID); err != nil {
		return err
	}
	a.Boot = k.boot
	if err := k.journal.write(a); err != nil {
		k.custody.giveUp(a.ID)
		return err
	}
	return nil
}

// errEnded is returned for a start whose attempt another process of the plugin has ended meanwhile.
var errEnded = errors.New("another process of the plugin has ended this start")

// stillBegun fails if another process of the plugin has ended the attempt, as a later start of the task does there. A start asks
// between the creation of its container and the container's start. The other process marks the record as over, or deletes it,
// and lists the containers afterwards. So either this start sees that it has ended, or the other process removes its container.
func (k *keeper) stillBegun(a attempt) error {
	noted, found, err := k.journal.read(a.ID)
	if err == nil && (!found || noted.Over) {
		return errEnded
	}
	return err
}

// end brings the attempt to its end and gives up custody. If that does not succeed
// at once, the sweeper retries it, also after a restart; the error says what is still
// to be done.
func (k *keeper) end(ctx context.Context, a attempt) error {
	defer k.custody.giveUp(a.ID)
	if !a.Over {
		a.Over, a.Ended, a.Boot = true, time.Now(), cmp.Or(a.Boot, k.boot)
		if err := k.journal.write(a); err != nil {
			k.logger.Error("the end of a task could not be noted", "task_id", a.ID, "error", err)
		}
	}
	return k.settle(ctx, a)
}

// endUnowned ends an attempt that no start, live task or sweep of this process holds.
func (k *keeper) endUnowned(ctx context.Context, a attempt) error {
	if err := k.custody.take(ctx, a.ID); err != nil {
		return err
	}
	return k.end(ctx, a)
}

// endRecorded does the same for an attempt that the journal may know. One without a
// record has ended.
func (k *keeper) endRecorded(ctx context.Context, id string) error {
	if err := k.custody.take(ctx, id); err != nil {
		return err
	}
	a, found, err := k.journal.read(id)
	if err != nil || !found {
		k.custody.giveUp(id)
		return err
	}
	return k.end(ctx, a)
}

var (
	// errMayRun is returned while a container may still use its GPUs: its claim stays.
	errMayRun = errors.New("the container is not gone, so its claim stays")
	// errNotRemoved is returned when the claim is released and only the ended container is left.
	errNotRemoved = errors.New("the container has ended and its claim is released, but Docker does not remove it")
)

// settle does what is left to do for an attempt. It can be repeated. A container that
// does not run uses no GPU memory, so the claim does not wait for its removal.
func (k *keeper) settle(ctx context.Context, a attempt) error {
	left, err := k.clear(ctx, a)
	if err != nil {
		return fmt.Errorf("%w: %w", errMayRun, err)
	}
	if err := k.giveBack(ctx, a); err != nil {
		return err
	}
	if left == nil {
		return errors.Join(k.checkpoints.remove(a.ID), k.staging.Remove(a.ID), k.journal.remove(a.ID))
	}
	return fmt.Errorf("%w: %w", errNotRemoved, errors.Join(left, k.noteReleased(a)))
}

// release gives back what an attempt holds whose container has ended, and leaves the container.
func (k *keeper) release(ctx context.Context, a attempt) error {
	if err := k.giveBack(ctx, a); err != nil {
		return err
	}
	return k.noteReleased(a)
}

func (k *keeper) noteReleased(a attempt) error {
	if a.Released {
		return nil
	}
	a.Released = true
	return k.journal.write(a)
}

// giveBack releases the attempt's claims.
func (k *keeper) giveBack(ctx context.Context, a attempt) error {
	if len(a.GPUs) == 0 || a.Released {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := k.table.Release(ctx, a.Owner, a.ID, a.GPUs); err != nil {
		return fmt.Errorf("the GPU memory of %s is not given back yet, which will be tried again: %w", a.Owner, err)
	}
	return nil
}

// clear makes sure that no container of the attempt runs. Its label is what counts: it
// finds the container even if the plugin died before it learned the ID. left says why
// a container that has ended could not be removed; err, why one may still run.
func (k *keeper) clear(ctx context.Context, a attempt) (left, err error) {
	clearing, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	containers, err := k.containers(clearing, a)
	if err != nil {
		return nil, err
	}
	return k.removeAll(ctx, clearing, containers)
}

// removeAll removes containers within the time of clearing, or only stops them if
// stopped ones are to stay. Its results are those of clear.
func (k *keeper) removeAll(ctx, clearing context.Context, containers []docker.Container) (left, err error) {
	for _, c := range containers {
		end := k.engine.Remove
		if k.keepContainers {
			end = k.stop
		}
		ended, failed := k.endOne(ctx, clearing, c, end)
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

func (k *keeper) stop(ctx context.Context, id string) error { return k.engine.Stop(ctx, id, "", 0) }

// endOne stops or removes one container. If that fails, ended reports whether the container
// is known to have ended. One that never ran may be about to: the daemon can be slow.
func (k *keeper) endOne(
	ctx, clearing context.Context, c docker.Container, end func(context.Context, string) error,
) (ended bool, err error) {
	err = end(clearing, c.ID)
	if err == nil || errors.Is(err, docker.ErrNotFound) {
		return true, nil
	}
	now, unknown := askFor(ctx, func(ctx context.Context) (docker.Container, error) { return k.engine.Inspect(ctx, c.ID) })
	if errors.Is(unknown, docker.ErrNotFound) {
		return true, nil
	}
	return unknown == nil && !mayRun(now), err
}

// containers returns those of the attempt, as the engine tells that has them. No
// other's word counts.
func (k *keeper) containers(ctx context.Context, a attempt) ([]docker.Container, error) {
	err := sameEngine(ctx, k.engine, a.Engine)
	if errors.Is(err, errElsewhere) && k.wentDown(a) {
		return nil, nil
	}
	if err != nil {
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

// recoverable reports whether a start may succeed later without any change to the
// job. Nomad then tries again on this node, with the same devices.
func recoverable(err error) bool {
	for _, temporary := range []error{allocator.ErrHeld, allocator.ErrUnavailable, allocator.ErrConflict, allocator.ErrSuperseded, context.DeadlineExceeded, errUnobserved, errMayRun, errEnded, errNoCDIDevice} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return docker.Recoverable(err)
}
