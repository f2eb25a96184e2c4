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

// bareAge is how old a claim without a container must be to be left behind. Another
// process may serve this node under another name, and be about to create it.
const bareAge = 2 * time.Minute

// strayAge is how long after its start the plugin leaves containers to Nomad, which asks
// for its tasks one after the other.
const strayAge = 2 * time.Minute

// Compare makes one round over this node's GPUs. It releases the claims that were left
// behind, reports whether there were any, and returns what there is to tell.
func (r *Reaper) Compare(ctx context.Context, now time.Time) (all []Remark, released bool) {
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	node, err := r.table.Node(ctx, r.Node.Host)
	if errors.Is(err, allocator.ErrUnavailable) {
		return notCompared("with what the device plugin lists", "", err), false
	}
	gpus := r.Node.gpus(node.GPUs)
	if len(gpus) == 0 {
		return nil, false
	}
	all = notCompared("with what the device plugin lists", "", err)
	if err == nil {
		all = SilenceRemark(r.Node.Host, node, now)
	}
	reports := len(all) == 0
	strays, err := r.strays(ctx, now)
	all = append(all, notCompared("with the containers", "", err)...)
	for _, gpu := range gpus {
		view, err := r.view(ctx, gpu, reports, now)
		view.Strays = strays
		released = released || view.released
		all = append(all, notCompared("with what runs here", gpu, err)...)
		all = append(all, view.Remarks()...)
	}
	return all, released
}

// notCompared is the remark on what could not be found out, if there is an error.
func notCompared(with string, gpu allocator.GPUID, err error) []Remark {
	if err == nil {
		return nil
	}
	text := "claims cannot be compared " + with + "; trying again: "
	return []Remark{{About: text + string(gpu), GPU: gpu, Text: text + err.Error()}}
}

// view looks at one GPU, after what was left behind on it is released.
func (r *Reaper) view(ctx context.Context, gpu allocator.GPUID, reports bool, now time.Time) (View, error) {
	released, failed := r.Reconcile(ctx, gpu, now)
	view := View{GPU: allocator.GPU{ID: gpu}, released: len(released) > 0}
	found, err := r.table.Inspect(ctx, gpu)
	if err != nil {
		return view, err // it is why the other failed, too
	}
	view.GPU = found
	for _, claim := range found.Claims() {
		if r.Node.Ownership(gpu, claim) == Foreign {
			view.Foreign = append(view.Foreign, claim)
		}
	}
	state, err := r.table.State(ctx, gpu)
	if reports && state.Node == r.Node.Host {
		view.GPU.State = state
	}
	return view, errors.Join(failed, err)
}

// strays are the containers of this driver that run on GPUs and that this process does
// not manage.
func (r *Reaper) strays(ctx context.Context, now time.Time) ([]label.Found, error) {
	if now.Sub(r.Since) < strayAge {
		return nil, nil
	}
	found, err := label.Find(ctx, r.engine)
	return slices.DeleteFunc(found, func(f label.Found) bool {
		return !f.Running || len(f.GPUs) == 0 || r.Locks.IsKept(f.Attempt)
	}), err
}

// Reconcile releases the claims on a GPU of this node whose tasks are proven gone, and
// returns them. Such claims come from a table that was restored from an old copy, and
// from a node that lost its state_dir. A claim whose attempt is in the journal, or is
// managed by a task, is released elsewhere; claims made outside Nomad and claims of
// other nodes stay.
func (r *Reaper) Reconcile(ctx context.Context, gpu allocator.GPUID, now time.Time) (released []allocator.Claim, err error) {
	if since, alone := r.Instance.Sole(now); !alone || now.Sub(since) < ResidueAge {
		return nil, nil // an earlier process may be about to create a container
	}
	ctx, cancel := context.WithTimeout(ctx, CleanupTimeout)
	defer cancel()
	found, err := r.table.Inspect(ctx, gpu)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, claim := range found.Claims() {
		if r.Node.Ownership(gpu, claim) != Ours {
			continue
		}
		if claim.State == allocator.Claimed && !claim.IsOlder(bareAge, now) {
			continue
		}
		gone, err := r.releaseClaim(ctx, gpu, claim)
		if gone {
			released = append(released, claim)
		}
		failed = append(failed, err)
	}
	return released, errors.Join(failed...)
}

// IsYoung reports whether this process will soon be able to prove that a claim was left
// behind: it is the only one, and has not been that for long.
func (r *Reaper) IsYoung(now time.Time) bool {
	since, alone := r.Instance.Sole(now)
	return alone && now.Sub(since) < ResidueAge
}

// releaseClaim releases a claim that has no container, no record and no task, and reports
// whether it did. A record that cannot be read proves nothing: then the containers decide,
// and the record is removed with the claim.
func (r *Reaper) releaseClaim(ctx context.Context, gpu allocator.GPUID, claim allocator.Claim) (bool, error) {
	if !r.Locks.LockBriefly(ctx, claim.Attempt) {
		return false, nil
	}
	defer r.Locks.Unlock(claim.Attempt)
	_, known, err := r.Journal.Read(claim.Attempt)
	damaged := errors.Is(err, ErrDamaged)
	if known || err != nil && !damaged {
		return false, err
	}
	if there, err := r.hasContainer(ctx, claim); there || err != nil {
		return false, err
	}
	if err := r.table.Release(ctx, claim.Owner, claim.Attempt, []allocator.GPUID{gpu}); err != nil {
		return false, err
	}
	if damaged {
		if err := r.Journal.Remove(claim.Attempt); err != nil {
			return true, err
		}
	}
	r.logger.Warn("released an orphan claim: this node has no container, no record and no task of it",
		"task", claim.Owner.String(), "gpu", gpu, "units", claim.Units.String())
	return true, nil
}

// hasContainer reports whether a container on this engine uses the claim's units, or may be
// about to. It fails if another engine had the claim's container.
func (r *Reaper) hasContainer(ctx context.Context, claim allocator.Claim) (bool, error) {
	if err := SameEngine(ctx, r.engine, claim.Engine); err != nil {
		return false, fmt.Errorf("claim of %s on units %s: %w", claim.Owner, claim.Units, err)
	}
	containers, err := r.engine.List(ctx, map[string]string{label.Attempt: claim.Attempt})
	if err != nil || slices.ContainsFunc(containers, func(c docker.Container) bool { return label.Ours(c) && MayRun(c) }) {
		return err == nil, err
	}
	containers, err = r.containersOf(ctx, claim.Owner)
	return slices.ContainsFunc(containers, MayRun), err
}

// AdviceOn says what to do about claims on the units of a running task: to stop one of the
// two tasks only where the other is proven to run as well. It is empty where the process was young when it tried to release the
// other claim: a later try can prove more.
func (r *Reaper) AdviceOn(ctx context.Context, err error, young bool) string {
	pending := false
	for _, held := range allocator.HeldErrors(err) {
		for _, claim := range held.Holders {
			if r.Node.Ownership(held.GPU, claim) != Ours {
				continue
			}
			if there, err := r.hasContainer(ctx, claim); there && err == nil {
				return "both run on this node, so stop one of the two"
			}
			pending = pending || young
		}
	}
	if pending {
		return ""
	}
	return "`nomad-gpu-mem doctor` shows whether the other one still exists, and releases its claim if not"
}
