// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// begunAt is an attempt of that ID that began so long after noon.
func begunAt(id string, after time.Duration) allocator.Attempt {
	return allocator.Attempt{ID: id, Begun: noon.Add(after), Engine: "engine-" + id}
}

// An attempt that comes late never takes the claim of a newer one.
func TestLedger_order_of_attempts(t *testing.T) {
	t.Parallel()
	const later = time.Hour // the clock of every claim below
	for name, c := range map[string]struct {
		first, second allocator.Attempt
		refused       bool
	}{
		"newer":                             {first: begunAt("1", 0), second: begunAt("2", time.Second)},
		"older":                             {first: begunAt("2", time.Second), second: begunAt("1", 0), refused: true},
		"older by a microsecond":            {first: begunAt("2", time.Microsecond), second: begunAt("1", 0), refused: true},
		"begun at once":                     {first: begunAt("1", 0), second: begunAt("2", 0)},
		"newer than a claim without begun":  {first: allocator.Attempt{ID: "1"}, second: begunAt("2", later)},
		"older than a claim without begun":  {first: allocator.Attempt{ID: "1"}, second: begunAt("2", 0), refused: true},
		"without begun":                     {first: begunAt("1", time.Minute), second: allocator.Attempt{ID: "2"}},
		"the claim began in the far future": {first: begunAt("1", 24*time.Hour), second: begunAt("2", later)},
		"the claim began in a moment":       {first: begunAt("1", later+time.Second), second: begunAt("2", later), refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := emptyLedger(t)
			_, err := l.Claim(ownerOf("alloc-1"), c.first, bookingOf("GPU-1", 0, 1), noon.Add(later))
			must.NoError(t, err)
			l = decoded(t, l)
			before, err := l.Encode()
			must.NoError(t, err)

			changed, err := l.Claim(ownerOf("alloc-1"), c.second, bookingOf("GPU-1", 1, 2), noon.Add(later))
			if !c.refused {
				must.NoError(t, err)
				must.True(t, changed)
				must.Eq(t, c.second.ID, l.Claims()[0].Attempt)
				return
			}
			must.ErrorIs(t, err, allocator.ErrSuperseded)
			for _, part := range []string{"GPU-1", "attempt 1", "attempt 2", "train/main (alloc alloc-1)"} {
				must.ErrorContains(t, err, part)
			}
			after, err := l.Encode()
			must.NoError(t, err)
			must.Eq(t, string(before), string(after))
		})
	}
}

// What is recorded of an attempt survives JSON, and a repetition adds what is missing:
// the program that claimed first may have been an older one.
func TestLedger_records_the_attempt(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 1, 2, 11, 59, 59, 123456789, time.FixedZone("", 3600))
	whole := allocator.Attempt{ID: "1", Begun: begun, Engine: "engine"}
	claim := func(l *allocator.Ledger, a allocator.Attempt) (changed bool) {
		changed, err := l.Claim(ownerOf("alloc-1"), a, bookingOf("GPU-1", 0, 1), noon)
		must.NoError(t, err)
		return changed
	}
	complete := emptyLedger(t)
	must.True(t, claim(complete, whole))
	added := emptyLedger(t)
	must.True(t, claim(added, allocator.Attempt{ID: "1"}))
	_, err := added.Run(ownerOf("alloc-1"), "1", "container", noon)
	must.NoError(t, err)
	must.True(t, claim(added, whole))
	for _, l := range []*allocator.Ledger{complete, added} {
		kept := decoded(t, l).Claims()[0]
		must.Eq(t, begun.UTC().Truncate(time.Microsecond), kept.Begun)
		must.Eq(t, "engine", kept.Engine)
		must.False(t, claim(l, whole), must.Sprint("and then nothing is missing"))
		must.False(t, claim(l, allocator.Attempt{ID: "1", Begun: begun.Add(time.Hour), Engine: "other"}), must.Sprint("the first counts"))
	}
	must.Eq(t, allocator.Running, added.Claims()[0].State)
}
