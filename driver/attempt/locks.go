// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"context"
	"sync"
)

// Locks gives each attempt to one holder at a time: a start, a running task, its end, or a loop. Otherwise the sweep
// could release what a start is claiming again.
//
// A start, a task and an end keep the lock. A loop holds it briefly, and waits for other loops: if loops skipped a
// locked attempt, two with related periods could collide in every round.
type Locks struct {
	mu   sync.Mutex
	held map[string]*lockHolder
}

type lockHolder struct {
	kept  bool          // by a start, a task or an end
	ended chan struct{} // closed by Unlock
}

func newLocks() *Locks { return &Locks{held: map[string]*lockHolder{}} }

// Lock waits until the attempt is unlocked, and keeps it. It fails if ctx ends first.
func (l *Locks) Lock(ctx context.Context, attempt string) error {
	for {
		held := l.enter(attempt, true)
		if held == nil {
			return nil
		}
		select {
		case <-held.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LockBriefly locks the attempt for a loop. It returns false if a start, a task or an end keeps the attempt, or if ctx ends
// before another loop unlocks it.
func (l *Locks) LockBriefly(ctx context.Context, attempt string) bool {
	for {
		held := l.enter(attempt, false)
		if held == nil || held.kept {
			return held == nil
		}
		select {
		case <-held.ended:
		case <-ctx.Done():
			return false
		}
	}
}

// enter locks the attempt, or returns the present holder.
func (l *Locks) enter(attempt string, keep bool) (other *lockHolder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, taken := l.held[attempt]; taken {
		return held
	}
	l.held[attempt] = &lockHolder{kept: keep, ended: make(chan struct{})}
	return nil
}

// IsKept reports whether a start, a task or an end keeps the attempt.
func (l *Locks) IsKept(attempt string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held, taken := l.held[attempt]
	return taken && held.kept
}

// Unlock lets the next party lock the attempt.
func (l *Locks) Unlock(attempt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, taken := l.held[attempt]; taken {
		close(held.ended)
		delete(l.held, attempt)
	}
}
