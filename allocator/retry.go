// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// maxRounds bounds how often a change is retried after a conflict. Each conflict means that
// another caller succeeded, so it is far above the number of tasks that start on one GPU at
// once.
const maxRounds = 200

// errUndecided is returned when the caller's context ended while its change waited, not
// during a call of the store, which would return an error that names the store.
var errUndecided = errors.New("not changed in time")

// untilApplied repeats a change, which reads, decides and writes, until it has no conflict.
// The subject names what is changed, for the error.
func untilApplied(ctx context.Context, subject string, change func() error) error {
	pause := newPacer()
	for range maxRounds {
		if err := change(); !errors.Is(err, ErrConflict) {
			return err
		}
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: gave up after %d rounds: %w", subject, maxRounds, ErrConflict)
}

// changeKey replaces the entry under a key by the result of decide; a nil value deletes it. A
// newer version's entry stays: the error matches ErrNewer.
func changeKey(ctx context.Context, store Store, key string, decide func(Entry) (value []byte, changed bool, err error)) error {
	return untilApplied(ctx, "key "+key, func() error {
		entry, err := store.Get(ctx, key)
		if err != nil {
			return err
		}
		if err := newerEntry(entry); err != nil {
			return err
		}
		value, changed, err := decide(entry)
		if err != nil || !changed {
			return err
		}
		return store.Apply(ctx, []Write{{Key: key, Value: value, Version: entry.Version}})
	})
}

const (
	// firstSpread and lastSpread bound, in rounds, the time over which retries are
	// spread. Each conflict in a row doubles it.
	firstSpread = 8
	lastSpread  = 32
	// maxPause bounds a pause, however long a round takes.
	maxPause = 500 * time.Millisecond
)

// pacer pauses between the rounds of a change with conflicts. It measures pauses in rounds,
// so that they fit any store and load.
type pacer struct {
	begun  time.Time
	round  time.Duration // the shortest so far
	spread time.Duration // in rounds
}

func newPacer() *pacer { return &pacer{begun: time.Now(), round: maxPause, spread: firstSpread} }

// wait ends a round with a pause, and begins the next.
func (p *pacer) wait(ctx context.Context) error {
	p.round = max(min(p.round, time.Since(p.begun)), time.Microsecond)
	pause := rand.N(min(p.round*p.spread, maxPause))
	p.spread = min(2*p.spread, lastSpread)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	defer func() { p.begun = time.Now() }()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: other callers keep changing it: %w", errUndecided, ctx.Err())
	}
}
