// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"time"
)

// Attempt is one start of a task. Nomad restarts a task after it ends, and after a crash of
// the agent even while an earlier start is still under way.
type Attempt struct {
	// ID is Nomad's ID of this start.
	ID string
	// Begun is when it began: it orders the attempts of one task. They all begin on one
	// node, and so by one clock.
	Begun time.Time
	// Engine is the ID of the Docker engine that will run it; empty if unknown.
	Engine string
}

// begunPrecision is the precision of Attempt.Begun in the table.
const begunPrecision = time.Microsecond

// recorded returns the attempt as the table stores it.
func (a Attempt) recorded() Attempt {
	if !a.Begun.IsZero() {
		a.Begun = a.Begun.UTC().Truncate(begunPrecision)
	}
	return a
}

// refuseOlder returns an error that matches ErrSuperseded if the claim belongs to a newer
// attempt.
//
// A claim without Begun, as older versions of this program write, counts from the time
// it was claimed. An attempt without Begun counts as beginning now. A claim that began in
// the future is not compared, since a clock was wrong: it would block every later attempt
// until that time.
func (a Attempt) refuseOlder(gpu GPUID, claim Claim, now time.Time) error {
	begun := claim.Begun
	if begun.IsZero() {
		begun = claim.ClaimedAt
	}
	if a.Begun.IsZero() || !a.Begun.Before(begun) || begun.After(now.Add(ClockSkew)) {
		return nil
	}
	return fmt.Errorf("GPU %s: attempt %s of %s began at %s, before attempt %s, which began at %s and has the claim: %w",
		gpu, a.ID, claim.Owner, a.Begun.Format(time.RFC3339Nano), claim.Attempt, begun.Format(time.RFC3339Nano), ErrSuperseded)
}

// completes adds missing fields of this attempt to its claim, and reports whether any were
// missing.
func (a Attempt) completes(claim *Claim) bool {
	before := *claim
	if claim.Begun.IsZero() {
		claim.Begun = a.Begun
	}
	if claim.Engine == "" {
		claim.Engine = a.Engine
	}
	return !claim.Begun.Equal(before.Begun) || claim.Engine != before.Engine
}
