// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"nomad-gpu-mem/allocator"
)

// Faults are the percentages of calls with each fault between table and store.
type Faults struct {
	LostRequest int // the write never arrives, and the caller does not know
	LostAnswer  int // the write is made, and the caller does not know
	Repeated    int // the write arrives twice
	Stale       int // a read returns what was there before
	Death       int // the process is killed before or after the call
}

// Injected counts the faults that happened.
type Injected struct {
	LostRequests, LostAnswers, Repeated, Stale, Deaths int
}

func (i *Injected) add(other Injected) {
	i.LostRequests += other.LostRequests
	i.LostAnswers += other.LostAnswers
	i.Repeated += other.Repeated
	i.Stale += other.Stale
	i.Deaths += other.Deaths
}

// Total is the number of all faults.
func (i *Injected) Total() int {
	return i.LostRequests + i.LostAnswers + i.Repeated + i.Stale + i.Deaths
}

// seam is one client's store, with faults. It is used by one goroutine.
type seam struct {
	allocator.Store
	faults   Faults
	random   *rand.Rand
	die      func()
	injected Injected
	earlier  map[string][]allocator.Entry // that were read before, by key

	stale bool // since the last write: what is decided now is outdated
	wrote bool // something was written, for all that the client knows
}

var errLost = fmt.Errorf("the answer was lost: %w", allocator.ErrUnavailable)

func newSeam(store allocator.Store, faults Faults, random *rand.Rand, die func()) *seam {
	return &seam{Store: store, faults: faults, random: random, die: die, earlier: map[string][]allocator.Entry{}}
}

// begin forgets what happened during earlier operations.
func (s *seam) begin() { s.stale, s.wrote = false, false }

func (s *seam) chance(percent int) bool { return s.random.IntN(100) < percent }

func (s *seam) mayDie() {
	if s.chance(s.faults.Death) {
		s.die()
	}
}

// Get returns the entry, or now and then one that was there before.
func (s *seam) Get(ctx context.Context, key string) (allocator.Entry, error) {
	s.mayDie()
	entry, err := s.Store.Get(ctx, key)
	if err != nil {
		return entry, err
	}
	seen := s.earlier[key]
	if len(seen) == 0 || seen[len(seen)-1].Version != entry.Version {
		s.earlier[key] = append(seen[max(0, len(seen)-5):], entry)
	}
	if old := s.earlier[key]; len(old) > 1 && s.chance(s.faults.Stale) {
		s.injected.Stale++
		s.stale = true
		return old[s.random.IntN(len(old)-1)], nil
	}
	return entry, nil
}

// Apply makes the writes, as faults will have it.
func (s *seam) Apply(ctx context.Context, writes []allocator.Write) error {
	s.mayDie()
	if s.chance(s.faults.LostRequest) {
		s.injected.LostRequests++
		return errLost
	}
	err := s.Store.Apply(ctx, writes)
	s.mayDie()
	s.stale = false // a conflict has everything read again
	s.wrote = s.wrote || err == nil
	switch {
	case errors.Is(err, allocator.ErrUnavailable):
		return err
	case s.chance(s.faults.Repeated):
		s.injected.Repeated++
		if again := s.Store.Apply(ctx, writes); !errors.Is(again, allocator.ErrConflict) && !errors.Is(again, allocator.ErrUnavailable) {
			return fmt.Errorf("a write that arrived twice was not rejected: %v", again) //nolint:errorlint // may be nil
		}
	}
	if s.chance(s.faults.LostAnswer) {
		s.injected.LostAnswers++
		return errLost
	}
	return err
}
