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

// Claim claims the booked units of all the GPUs for the owner, or nothing. It is idempotent
// by owner and attempt. If another task holds a unit, the error is a *HeldError; if a newer
// attempt of the same task has a claim, it matches ErrSuperseded. See also ErrUnitMismatch,
// ErrUnreadable and the store's errors.
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

// Assert writes the claims of a running task, with its container: they are missing after the
// table was wiped or restored from an old copy. It changes each GPU separately, since the
// task runs on all of them anyway. The errors are those of Claim, joined.
func (t *Table) Assert(ctx context.Context, owner Owner, attempt Attempt, container string, bookings []Booking) error {
	now := t.now()
	byGPU, gpus, err := bookingsByGPU(bookings)
	if err != nil {
		return err
	}
	return t.changeEach(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		next := l.clone() // all or nothing
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

// Running records the container of the owner's claims, on each of these GPUs separately.
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

// Stuck records that the container of the owner's claims on these GPUs cannot be stopped,
// mostly because of a GPU fault: the device plugin stops offering them until the claims are
// released. It is idempotent; a missing claim, or one of another attempt, is not an error. A
// failure on one GPU does not stop the others.
func (t *Table) Stuck(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	now := t.now()
	return t.changeEach(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		return l.Stuck(owner, attempt, now), nil
	})
}

// Release releases the owner's units on these GPUs. It is idempotent; claims of another
// attempt stay. It releases each GPU separately, so that an unreadable ledger does not keep
// the others. Once it has returned nil, no earlier claim of this attempt can still succeed,
// even one with a lost answer.
func (t *Table) Release(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	return t.changeEach(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		l.Release(owner, attempt)
		return true, nil
	})
}

// Reserve reserves units for a task that a planner is about to submit, on all the GPUs or
// none, for ttl. The owner's Alloc is the reservation's ID, chosen by the planner; repeating
// the call changes nothing. A reservation binds other planners only. It ends when its task
// claims, when a task that Nomad placed needs the units and no others are free, when Release
// is called with its ID as attempt, or when it expires. See ErrNoRoom and ErrUnitMismatch.
func (t *Table) Reserve(ctx context.Context, owner Owner, ttl time.Duration, requests []UnitRequest) error {
	if ttl <= 0 || ttl > MaxReservation {
		return fmt.Errorf("reservation for %s, want more than 0 and at most %s: %w", ttl, MaxReservation, ErrInvalid)
	}
	return t.reserveUnits(ctx, owner, Reserved, ttl, requests)
}

// Request requests units of one GPU for use outside Nomad. The owner's Alloc is an ID chosen
// by the caller. The device plugin stops offering the units to Nomad, but a task that Nomad
// has already placed may still take them. Once that is impossible, the caller calls Hold. The
// request expires after patience, in case its caller has died.
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
