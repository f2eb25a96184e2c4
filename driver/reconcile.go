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
	"nomad-gpu-mem/driver/label"
)

// bareAge is how old a claim without a container must be to be left behind. Another
// process may serve this node under another name, and be about to create it.
const bareAge = 2 * time.Minute

// strayAge is how long after its start the plugin leaves containers to Nomad, which asks
// for its tasks one after the other.
const strayAge = 2 * time.Minute

// reconcileLoop compares what the table says of this node's GPUs with what runs here, and
// with what the device plugin sees on them. Claims that nobody stands behind are
// released, those of running tasks are confirmed by assertLoop, the rest is told.
func (p *Plugin) reconcileLoop(s *services) {
	s.keeper.tenancy.sole(time.Now()) // from now on it counts
	var bulletin bulletin
	every(p.ctx, p.pace.assert, func() { p.reconcileRound(s, &bulletin) })
}

func (p *Plugin) reconcileRound(s *services, bulletin *bulletin) {
	round, released := s.keeper.compare(p.ctx, time.Now())
	if released {
		p.assertAll(s) // what was released may have had the units of a running task
	}
	news, over := bulletin.after(append(round, toTasks(round, p.tasks.all())...))
	if p.ctx.Err() != nil {
		return
	}
	for _, r := range news {
		p.tell(r)
	}
	for _, r := range over {
		if r.task == nil {
			p.logger.Info("no longer so", "gpu", r.gpu, "was", r.text)
		}
	}
}

// tell tells the operator, or the task that a remark is for.
func (p *Plugin) tell(r remark) {
	if r.task != nil {
		p.announcer.tell(r.task, "GPU "+string(r.gpu)+": "+r.text)
		return
	}
	p.logger.Warn(r.text, "gpu", r.gpu)
}

// compare makes one round over this node's GPUs. It releases the claims that were left
// behind, reports whether there were any, and returns what there is to tell.
func (k *keeper) compare(ctx context.Context, now time.Time) (all []remark, released bool) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	node, err := k.table.Node(ctx, k.home.host)
	if errors.Is(err, allocator.ErrUnavailable) {
		return notCompared("with what the device plugin lists", "", err), false
	}
	gpus := k.home.gpus(node.GPUs)
	if len(gpus) == 0 {
		return nil, false
	}
	all = notCompared("with what the device plugin lists", "", err)
	if err == nil {
		all = silence(k.home.host, node, now)
	}
	reports := len(all) == 0
	strays, err := k.strays(ctx, now)
	all = append(all, notCompared("with the containers", "", err)...)
	for _, gpu := range gpus {
		view, err := k.view(ctx, gpu, reports, now)
		view.strays = strays
		released = released || view.released
		all = append(all, notCompared("with what runs here", gpu, err)...)
		all = append(all, view.remarks()...)
	}
	return all, released
}

// notCompared is the remark on what could not be found out, if there is an error.
func notCompared(with string, gpu allocator.GPUID, err error) []remark {
	if err == nil {
		return nil
	}
	text := "claims cannot be compared " + with + "; trying again: "
	return []remark{{about: text + string(gpu), gpu: gpu, text: text + err.Error()}}
}

// view looks at one GPU, after what was left behind on it is released.
func (k *keeper) view(ctx context.Context, gpu allocator.GPUID, reports bool, now time.Time) (outlook, error) {
	released, failed := k.reconcile(ctx, gpu, now)
	view := outlook{gpu: allocator.GPU{ID: gpu}, released: len(released) > 0}
	found, err := k.table.Inspect(ctx, gpu)
	if err != nil {
		return view, err // it is why the other failed, too
	}
	view.gpu = found
	for _, claim := range found.Claims() {
		if k.home.whose(gpu, claim) == anothers {
			view.anothers = append(view.anothers, claim)
		}
	}
	state, err := k.table.State(ctx, gpu)
	if reports && state.Node == k.home.host {
		view.gpu.State = state
	}
	return view, errors.Join(failed, err)
}

// strays are the containers of this driver that run on GPUs and that nobody in this
// process looks after.
func (k *keeper) strays(ctx context.Context, now time.Time) ([]label.Found, error) {
	if now.Sub(k.since) < strayAge {
		return nil, nil
	}
	found, err := label.Find(ctx, k.engine)
	return slices.DeleteFunc(found, func(f label.Found) bool {
		return !f.Running || len(f.GPUs) == 0 || k.custody.kept(f.Attempt)
	}), err
}

// reconcile releases the claims on a GPU of this node whose tasks are proven gone, and
// returns them. Such claims come from a table that was restored from an old copy, and
// from a node that lost its state_dir. What the journal knows, or anybody looks after,
// has an end of its own; what people hold outside Nomad is theirs, and what other nodes
// hold is theirs.
func (k *keeper) reconcile(ctx context.Context, gpu allocator.GPUID, now time.Time) (released []allocator.Claim, err error) {
	if since, alone := k.tenancy.sole(now); !alone || now.Sub(since) < residueAge {
		return nil, nil // an earlier process may be about to create a container
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	found, err := k.table.Inspect(ctx, gpu)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, claim := range found.Claims() {
		if k.home.whose(gpu, claim) != own {
			continue
		}
		if claim.State == allocator.Claimed && !claim.IsOlder(bareAge, now) {
			continue
		}
		gone, err := k.releaseClaim(ctx, gpu, claim)
		if gone {
			released = append(released, claim)
		}
		failed = append(failed, err)
	}
	return released, errors.Join(failed...)
}

// isYoung reports whether this process will soon be able to prove that a claim was left
// behind: it is the only one, and has not been that for long.
func (k *keeper) isYoung(now time.Time) bool {
	since, alone := k.tenancy.sole(now)
	return alone && now.Sub(since) < residueAge
}

// releaseClaim gives back a claim that has no container, no record and no task, and reports
// whether it did. A record that cannot be read tells nothing: then the containers decide,
// and the record is removed with the claim.
func (k *keeper) releaseClaim(ctx context.Context, gpu allocator.GPUID, claim allocator.Claim) (bool, error) {
	if !k.custody.look(ctx, claim.Attempt) {
		return false, nil
	}
	defer k.custody.giveUp(claim.Attempt)
	_, known, err := k.journal.read(claim.Attempt)
	damaged := errors.Is(err, errDamaged)
	if known || err != nil && !damaged {
		return false, err
	}
	if there, err := k.hasContainer(ctx, claim); there || err != nil {
		return false, err
	}
	if err := k.table.Release(ctx, claim.Owner, claim.Attempt, []allocator.GPUID{gpu}); err != nil {
		return false, err
	}
	if damaged {
		if err := k.journal.remove(claim.Attempt); err != nil {
			return true, err
		}
	}
	k.logger.Warn("released a claim that was left behind: no container, no record and no task of this node stands behind it",
		"task", claim.Owner.String(), "gpu", gpu, "units", claim.Units.String())
	return true, nil
}

// hasContainer reports whether a container on this engine uses the claim's units, or may be
// about to. It fails if another engine had the claim's container.
func (k *keeper) hasContainer(ctx context.Context, claim allocator.Claim) (bool, error) {
	if err := sameEngine(ctx, k.engine, claim.Engine); err != nil {
		return false, fmt.Errorf("claim of %s on units %s: %w", claim.Owner, claim.Units, err)
	}
	containers, err := k.engine.List(ctx, map[string]string{label.Attempt: claim.Attempt})
	if err != nil || slices.ContainsFunc(containers, func(c docker.Container) bool { return label.Ours(c) && mayRun(c) }) {
		return err == nil, err
	}
	containers, err = k.containersOf(ctx, claim.Owner)
	return slices.ContainsFunc(containers, mayRun), err
}
