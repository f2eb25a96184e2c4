// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Table is the allocation table: all claims and GPU states of a cluster, kept
// in a store. Its methods may be called concurrently, from any number of
// processes.
type Table struct {
	store   Store
	now     func() time.Time
	decoder decoder // of snapshots

	combiner combiner // of changes to one GPU
}

// Option changes how a table works.
type Option func(*Table)

// WithClock makes the table take its times from now.
func WithClock(now func() time.Time) Option { return func(t *Table) { t.now = now } }

// NewTable returns the table in the given store.
func NewTable(store Store, options ...Option) *Table {
	t := &Table{store: store, now: func() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }}
	for _, option := range options {
		option(t)
	}
	return t
}

// Close closes the store.
func (t *Table) Close() error { return t.store.Close() }

// Claim takes the booked units of all the GPUs for the owner, or nothing. It is
// idempotent by owner and attempt. If another task holds a unit the error is a
// *HeldError, and if a newer attempt of the same task has a claim it matches
// ErrSuperseded; see also ErrUnitMismatch, ErrUnreadable and the store's errors.
func (t *Table) Claim(ctx context.Context, owner Owner, attempt Attempt, bookings []Booking) error {
	now := t.now()
	byGPU, gpus, err := bookingsByGPU(bookings)
	if err != nil {
		return err
	}
	return t.change(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		return l.Claim(owner, attempt, byGPU[gpu], now)
	})
}

// Assert writes the claims of a task that runs, and its container into them, as they
// should be: after the table was wiped or restored from an old copy they are missing.
// It does so for each GPU by itself, since the task runs on all of them anyway; the
// errors are joined, and are otherwise those of Claim.
func (t *Table) Assert(ctx context.Context, owner Owner, attempt Attempt, container string, bookings []Booking) error {
	now := t.now()
	byGPU, gpus, err := bookingsByGPU(bookings)
	if err != nil {
		return err
	}
	return t.changeEach(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		next := l.clone() // all of it or nothing
		claimed, err := next.Claim(owner, attempt, byGPU[gpu], now)
		if err != nil {
			return false, err
		}
		ran, err := next.Run(owner, attempt.ID, container, now)
		if err != nil {
			return false, fmt.Errorf("GPU %s: %w", gpu, err)
		}
		*l = *next
		return claimed || ran, nil
	})
}

// Running records the container of the owner's claims on these GPUs, on each by itself.
func (t *Table) Running(ctx context.Context, owner Owner, attempt, container string, gpus []GPUID) error {
	now := t.now()
	return t.changeEach(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		changed, err := l.Run(owner, attempt, container, now)
		if err != nil {
			return false, fmt.Errorf("GPU %s: %w", gpu, err)
		}
		return changed, nil
	})
}

// Stuck records that the container of the owner's claims on these GPUs cannot be
// ended, which is mostly the fault of a GPU: the device plugin offers them no
// more until the claims are released. It is idempotent; a claim of another
// attempt, or none, is no error. What fails on one GPU is recorded on the others.
func (t *Table) Stuck(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	now := t.now()
	return t.changeEach(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		return l.Stuck(owner, attempt, now), nil
	})
}

// Release gives back the owner's units on these GPUs. It is idempotent; claims
// of another attempt stay. It releases each GPU by itself, so that one whose ledger
// cannot be read does not keep the others. Once it has returned nil, no claim of this attempt that
// was sent before it can still come true, even if its answer was lost.
func (t *Table) Release(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	return t.changeEach(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		l.Release(owner, attempt)
		return true, nil
	})
}

// Reserve keeps units for a task that a planner is about to submit, on all the
// GPUs or none, for ttl. The owner's Alloc is an ID that the planner chose for
// the reservation; repeating it changes nothing. A reservation keeps other
// planners away and nobody else: it ends when its task claims, when a task that
// Nomad placed needs the units and there are no others, when Release is called
// with its ID as attempt, and by itself. See ErrNoRoom and ErrUnitMismatch.
func (t *Table) Reserve(ctx context.Context, owner Owner, ttl time.Duration, requests []UnitRequest) error {
	if ttl <= 0 || ttl > MaxReservation {
		return fmt.Errorf("reservation for %s, more than 0 and at most %s is possible: %w", ttl, MaxReservation, ErrInvalid)
	}
	return t.reserveUnits(ctx, owner, Reserved, ttl, requests)
}

// Request asks for units of one GPU for a person outside Nomad. The owner's
// Alloc is an ID that the caller chose. The device plugin stops offering the
// units to Nomad, but a task that Nomad has placed by then may still take them.
// Once that cannot be, Hold makes them the person's. The request ends by itself
// after patience, should nobody be there any more to hold it or give it up.
func (t *Table) Request(ctx context.Context, owner Owner, patience time.Duration, request UnitRequest) error {
	if patience <= 0 {
		return fmt.Errorf("request for %s: %w", patience, ErrInvalid)
	}
	return t.reserveUnits(ctx, owner, Requested, patience, []UnitRequest{request})
}

// Hold turns a request into units that no task can take, for ttl or, if that is
// 0, until Release. The error matches ErrInvalid if the request is gone.
func (t *Table) Hold(ctx context.Context, owner Owner, gpu GPUID, ttl time.Duration) error {
	if ttl < 0 {
		return fmt.Errorf("hold for %s: %w", ttl, ErrInvalid)
	}
	now := t.now()
	return t.change(ctx, []GPUID{gpu}, func(gpu GPUID, l *Ledger) (bool, error) {
		changed, err := l.hold(owner, ttl, now)
		if err != nil {
			return false, fmt.Errorf("GPU %s: %w", gpu, err)
		}
		return changed, nil
	})
}

func bookingsByGPU(bookings []Booking) (byGPU map[GPUID]Booking, gpus []GPUID, err error) {
	byGPU = make(map[GPUID]Booking, len(bookings))
	for _, b := range bookings {
		if _, twice := byGPU[b.GPU]; twice {
			return nil, nil, fmt.Errorf("two bookings of GPU %s in one claim: %w", b.GPU, ErrInvalid)
		}
		byGPU[b.GPU] = b
		gpus = append(gpus, b.GPU)
	}
	return byGPU, gpus, nil
}

func (t *Table) reserveUnits(ctx context.Context, owner Owner, state ClaimState, life time.Duration, requests []UnitRequest) error {
	now := t.now()
	claim := Claim{Owner: owner, Attempt: owner.Alloc, State: state, ClaimedAt: now, ExpiresAt: now.Add(life)}
	byGPU := make(map[GPUID]UnitRequest, len(requests))
	for _, request := range requests {
		if _, twice := byGPU[request.GPU]; twice {
			return fmt.Errorf("two requests for units of GPU %s: %w", request.GPU, ErrInvalid)
		}
		byGPU[request.GPU] = request
	}
	gpus := slices.Collect(maps.Keys(byGPU))
	return t.change(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		return l.reserveUnits(claim, byGPU[gpu], now)
	})
}
