// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
)

// changeEach changes the ledgers of GPUs one after the other. A failure on one GPU does not
// stop the others: one ledger may be unreadable, or of a newer version, for long. The
// errors are joined; each names its GPU or its key.
func (t *Table) changeEach(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) error {
	var failed []error
	for _, gpu := range distinct(gpus) {
		failed = append(failed, t.change(ctx, []GPUID{gpu}, decide))
		if ctx.Err() != nil || errors.Is(failed[len(failed)-1], ErrClosed) {
			break
		}
	}
	return errors.Join(failed...)
}

// distinct returns each GPU once, sorted: a transaction may write a key only once.
func distinct(gpus []GPUID) []GPUID { return slices.Compact(slices.Sorted(slices.Values(gpus))) }

// change changes the ledgers of GPUs, all or none. On a conflict it reads and decides again.
// The decision holds for all GPUs at one moment: the unchanged ledgers must still have their
// versions when the others are written.
func (t *Table) change(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) error {
	err := t.changeAll(ctx, distinct(gpus), decide)
	if errors.Is(err, errUndecided) {
		return fmt.Errorf("claims of GPUs %v in %s: %w", gpus, t.place(), err)
	}
	return err
}

// place names the store in messages.
func (t *Table) place() string {
	if named, ok := t.store.(fmt.Stringer); ok {
		return named.String()
	}
	return "the allocation table"
}

func (t *Table) changeAll(ctx context.Context, gpus []GPUID, decide func(GPUID, *Ledger) (bool, error)) error {
	if len(gpus) == 1 {
		return t.combiner.do(ctx, gpus[0], decide, func(ctx context.Context, batch []*pendingChange) []error {
			return t.changeOne(ctx, gpus[0], batch)
		})
	}
	return untilApplied(ctx, fmt.Sprintf("claims of GPUs %v", gpus), func() error {
		read, writes, err := t.decideAll(ctx, gpus, decide)
		if err != nil {
			return err
		}
		if changesNothing(read, writes) {
			return t.stillSo(ctx, read)
		}
		return t.store.Apply(ctx, writes)
	})
}

// changeOne writes several callers' changes to one GPU at once. Each change sees the ledger
// as left by those before it, and has its own outcome.
func (t *Table) changeOne(ctx context.Context, gpu GPUID, batch []*pendingChange) []error {
	outcomes := make([]error, len(batch))
	err := untilApplied(ctx, "claims of GPU "+string(gpu), func() error {
		write, changed, err := t.decideOne(ctx, gpu, batch, outcomes)
		if err == nil && changed {
			err = t.store.Apply(ctx, []Write{write})
		}
		if errors.Is(err, ErrTooLarge) && len(batch) > 1 {
			outcomes = t.changeAlone(ctx, gpu, batch)
			return nil
		}
		return err
	})
	if err != nil {
		for i := range outcomes {
			outcomes[i] = err
		}
	}
	return outcomes
}

// changeAlone writes several callers' changes to one GPU one by one, since together they are
// too large: a change that is too large by itself must not fail the others.
func (t *Table) changeAlone(ctx context.Context, gpu GPUID, batch []*pendingChange) []error {
	outcomes := make([]error, len(batch))
	for i := range batch {
		outcomes[i] = t.changeOne(ctx, gpu, batch[i:i+1])[0]
	}
	return outcomes
}

func (t *Table) decideOne(ctx context.Context, gpu GPUID, batch []*pendingChange, outcomes []error) (write Write, changed bool, err error) {
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

// decideAll returns the entries that it read and a write for each. The write of an unchanged
// entry has the same value: it only checks the version.
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

// stillSo returns ErrConflict if one of several entries changed since it was read.
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
