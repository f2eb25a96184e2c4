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

// maxRounds bounds how often a change is decided again after a conflict. Each
// conflict means that another caller got through, so it is far above the number of
// tasks that start on one GPU at once.
const maxRounds = 200

// errUndecided marks the error of a change whose caller's time was up while it waited,
// and not while the store was asked: the store's own error would name the store.
var errUndecided = errors.New("not changed in time")

// untilApplied repeats a change, which reads, decides and writes, until no other caller
// gets ahead of it. The subject names what is changed, for the error.
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

// changeKey writes what decide makes of the entry under a key. A nil value deletes it. What a newer version wrote stays:
// the error matches ErrNewer.
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
	// firstSpread and lastSpread bound, in rounds, the time over which those
	// spread who try again. Each conflict in a row doubles it: so many more
	// must be there.
	firstSpread = 8
	lastSpread  = 32
	// maxPause bounds a pause whatever a round takes.
	maxPause = 500 * time.Millisecond
)

// pacer pauses between the rounds of a change that others get ahead of. A round
// is its measure, so that it fits any store and any load.
type pacer struct {
	begun  time.Time
	round  time.Duration // the shortest that was seen
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
		return fmt.Errorf("%w: others keep changing it: %w", errUndecided, ctx.Err())
	}
}
