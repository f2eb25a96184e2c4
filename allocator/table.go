package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// maxRounds bounds how often a change is decided again after a conflict.
	// Each conflict means that somebody else got through, so it is far above
	// the number of tasks that start on one GPU at once.
	maxRounds = 200
	// maxPause bounds the random pause before deciding again.
	maxPause = 20 * time.Millisecond
)

// Table is the allocation table: all claims and GPU states of a cluster, kept
// in a store. Its methods may be called concurrently, from any number of
// processes.
type Table struct {
	store Store
	now   func() time.Time
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
// *HeldError; see also ErrUnitMismatch, ErrUnreadable and the store's errors.
func (t *Table) Claim(ctx context.Context, owner Owner, attempt string, bookings []Booking) error {
	now := t.now()
	byGPU := make(map[GPUID]Booking, len(bookings))
	gpus := make([]GPUID, 0, len(bookings))
	for _, b := range bookings {
		if _, twice := byGPU[b.GPU]; twice {
			return fmt.Errorf("two bookings of GPU %s in one claim: %w", b.GPU, ErrInvalid)
		}
		byGPU[b.GPU] = b
		gpus = append(gpus, b.GPU)
	}
	return t.change(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		return l.Claim(owner, attempt, byGPU[gpu], now)
	})
}

// Running records the container of the owner's claims on these GPUs.
func (t *Table) Running(ctx context.Context, owner Owner, attempt, container string, gpus []GPUID) error {
	now := t.now()
	return t.change(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		changed, err := l.Run(owner, attempt, container, now)
		if err != nil {
			return false, fmt.Errorf("GPU %s: %w", gpu, err)
		}
		return changed, nil
	})
}

// Release gives back the owner's units on these GPUs. It is idempotent; claims
// of another attempt stay.
func (t *Table) Release(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	return t.change(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		return l.Release(owner, attempt), nil
	})
}

// change decides on the ledgers of some GPUs and writes those that changed, all
// or none. On a conflict it reads and decides again.
func (t *Table) change(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) error {
	gpus = slices.Compact(slices.Sorted(slices.Values(gpus))) // a key may be written once at a time
	for range maxRounds {
		writes, err := t.decideAll(ctx, gpus, decide)
		if err != nil || len(writes) == 0 {
			return err
		}
		err = t.store.Apply(ctx, writes)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("claims of GPUs %v: gave up after %d rounds: %w", gpus, maxRounds, ErrConflict)
}

func (t *Table) decideAll(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) ([]Write, error) {
	var writes []Write
	for _, gpu := range gpus {
		key := ClaimsKey(gpu)
		entry, err := t.store.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		ledger, err := DecodeLedger(entry.Value)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		changed, err := decide(gpu, ledger)
		if err != nil {
			return nil, err
		}
		if !changed {
			continue
		}
		value, err := ledger.Encode()
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		writes = append(writes, Write{Key: key, Value: value, Version: entry.Version})
	}
	return writes, nil
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(rand.N(maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
