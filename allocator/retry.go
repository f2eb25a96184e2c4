package allocator

import (
	"context"
	"math/rand/v2"
	"time"
)

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
		return ctx.Err()
	}
}
