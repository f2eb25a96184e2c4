package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// maxRounds bounds how often a change is decided again after a conflict.
	// Each conflict means that somebody else got through, so it is far above
	// the number of tasks that start on one GPU at once.
	maxRounds = 200
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

// Stuck records that the container of the owner's claims on these GPUs cannot be
// ended, which is mostly the fault of a GPU: the device plugin offers them no
// more until the claims are released. It is idempotent; a claim of another
// attempt, or none, is no error.
func (t *Table) Stuck(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	now := t.now()
	return t.change(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		return l.Stuck(owner, attempt, now), nil
	})
}

// Release gives back the owner's units on these GPUs. It is idempotent; claims
// of another attempt stay. Once it has returned, no claim of this attempt that
// was sent before it can still come true, even if its answer was lost.
func (t *Table) Release(ctx context.Context, owner Owner, attempt string, gpus []GPUID) error {
	return t.change(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
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
func (t *Table) Reserve(ctx context.Context, owner Owner, ttl time.Duration, rooms []Room) error {
	if ttl <= 0 || ttl > MaxReservation {
		return fmt.Errorf("reservation for %s, more than 0 and at most %s is possible: %w", ttl, MaxReservation, ErrInvalid)
	}
	return t.promise(ctx, owner, Reserved, ttl, rooms)
}

// Request asks for units of one GPU for a person outside Nomad. The owner's
// Alloc is an ID that the caller chose. The device plugin stops offering the
// units to Nomad, but a task that Nomad has placed by then may still take them.
// Once that cannot be, Hold makes them the person's. The request ends by itself
// after patience, should nobody be there any more to hold it or give it up.
func (t *Table) Request(ctx context.Context, owner Owner, patience time.Duration, room Room) error {
	if patience <= 0 {
		return fmt.Errorf("request for %s: %w", patience, ErrInvalid)
	}
	return t.promise(ctx, owner, Requested, patience, []Room{room})
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

func (t *Table) promise(ctx context.Context, owner Owner, state ClaimState, life time.Duration, rooms []Room) error {
	now := t.now()
	claim := Claim{Owner: owner, Attempt: owner.Alloc, State: state, ClaimedAt: now, ExpiresAt: now.Add(life)}
	byGPU := make(map[GPUID]Room, len(rooms))
	for _, room := range rooms {
		if _, twice := byGPU[room.GPU]; twice {
			return fmt.Errorf("room on GPU %s is wanted twice: %w", room.GPU, ErrInvalid)
		}
		byGPU[room.GPU] = room
	}
	gpus := slices.Collect(maps.Keys(byGPU))
	return t.change(ctx, gpus, func(gpu GPUID, l *Ledger) (bool, error) {
		return l.promise(claim, byGPU[gpu], now)
	})
}

// change decides on the ledgers of some GPUs and writes those that changed, all
// or none. On a conflict it reads and decides again. What it decides holds for
// all the GPUs at one moment: those that stay as they are must still be so when
// the others are written.
func (t *Table) change(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) error {
	gpus = slices.Compact(slices.Sorted(slices.Values(gpus))) // a key may be written once at a time
	if len(gpus) == 1 {
		return t.combiner.do(ctx, gpus[0], decide, func(ctx context.Context, batch []*order) []error {
			return t.changeOne(ctx, gpus[0], batch)
		})
	}
	pause := newPacer()
	for range maxRounds {
		read, writes, err := t.decideAll(ctx, gpus, decide)
		if err != nil {
			return err
		}
		if changesNothing(read, writes) {
			err = t.stillSo(ctx, read)
		} else {
			err = t.store.Apply(ctx, writes)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("claims of GPUs %v: gave up after %d rounds: %w", gpus, maxRounds, ErrConflict)
}

// changeOne makes several callers' changes to one GPU in one write, one after
// the other. Each is decided on the ledger that those before it have left, and
// has its own outcome.
func (t *Table) changeOne(ctx context.Context, gpu GPUID, batch []*order) []error {
	outcomes := make([]error, len(batch))
	fail := func(err error) []error {
		for i := range outcomes {
			outcomes[i] = err
		}
		return outcomes
	}
	pause := newPacer()
	for range maxRounds {
		write, changed, err := t.decideOne(ctx, gpu, batch, outcomes)
		if err == nil && changed {
			err = t.store.Apply(ctx, []Write{write})
		}
		switch {
		case err == nil:
			return outcomes
		case !errors.Is(err, ErrConflict):
			return fail(err)
		}
		if err := pause.wait(ctx); err != nil {
			return fail(err)
		}
	}
	return fail(fmt.Errorf("claims of GPU %s: gave up after %d rounds: %w", gpu, maxRounds, ErrConflict))
}

func (t *Table) decideOne(ctx context.Context, gpu GPUID, batch []*order, outcomes []error) (write Write, changed bool, err error) {
	key := ClaimsKey(gpu)
	entry, err := t.store.Get(ctx, key)
	if err != nil {
		return write, false, err
	}
	ledger, err := DecodeLedger(entry.Value)
	if err != nil {
		return write, false, fmt.Errorf("key %s: %w", key, err)
	}
	for i, order := range batch {
		var did bool
		did, outcomes[i] = order.decide(gpu, ledger)
		changed = changed || did
	}
	if !changed {
		return write, false, nil
	}
	value, err := ledger.Encode()
	if err != nil {
		return write, false, fmt.Errorf("key %s: %w", key, err)
	}
	return Write{Key: key, Value: value, Version: entry.Version}, true, nil
}

// decideAll returns what it read, and a write for each of it: of the same value
// where nothing is to change, which only checks the version.
func (t *Table) decideAll(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) (read []Entry, writes []Write, err error) {
	for _, gpu := range gpus {
		key := ClaimsKey(gpu)
		entry, err := t.store.Get(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		ledger, err := DecodeLedger(entry.Value)
		if err != nil {
			return nil, nil, fmt.Errorf("key %s: %w", key, err)
		}
		changed, err := decide(gpu, ledger)
		if err != nil {
			return nil, nil, err
		}
		value := entry.Value
		if changed {
			if value, err = ledger.Encode(); err != nil {
				return nil, nil, fmt.Errorf("key %s: %w", key, err)
			}
		}
		read = append(read, entry)
		writes = append(writes, Write{Key: key, Value: value, Version: entry.Version})
	}
	return read, writes, nil
}

func changesNothing(read []Entry, writes []Write) bool {
	for i, entry := range read {
		if !bytes.Equal(entry.Value, writes[i].Value) {
			return false
		}
	}
	return true
}

// stillSo returns ErrConflict if one of several entries changed while the
// others were read.
func (t *Table) stillSo(ctx context.Context, read []Entry) error {
	if len(read) < 2 {
		return nil
	}
	for _, entry := range read {
		now, err := t.store.Get(ctx, entry.Key)
		if err != nil {
			return err
		}
		if now.Version != entry.Version {
			return fmt.Errorf("key %s: %w", entry.Key, ErrConflict)
		}
	}
	return nil
}
