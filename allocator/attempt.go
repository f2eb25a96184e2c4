// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"time"
)

// Attempt is one start of a task. Nomad starts a task again after each of its ends, and
// after a crash of its agent also while an earlier start is still under way.
type Attempt struct {
	// ID is Nomad's ID of this start.
	ID string
	// Begun says when it began: it orders the attempts of one task. All of them begin on
	// one node, and so by one clock.
	Begun time.Time
	// Engine is the ID of the Docker engine that will run it; empty if it is not known.
	Engine string
}

// begunPrecision is how exactly the table keeps when an attempt began.
const begunPrecision = time.Microsecond

// recorded returns the attempt as the table keeps it and as it comes back from JSON.
func (a Attempt) recorded() Attempt {
	if !a.Begun.IsZero() {
		a.Begun = a.Begun.UTC().Truncate(begunPrecision)
	}
	return a
}

// refuseOlder returns an error that matches ErrSuperseded if the claim is that of a
// newer attempt than the given one.
//
// A claim without Begun, as older versions of this program write, counts from the time
// it was claimed. An attempt without Begun counts as one that begins now. A claim that
// began in the future orders nothing, since a clock was wrong: it would shut out
// every later attempt until the clock gets there.
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

// completes adds to a claim of this attempt what it does not record yet of the attempt,
// and reports whether there was anything to add.
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
