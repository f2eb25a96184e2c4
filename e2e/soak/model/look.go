// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"time"
)

// Claim is a task's claim on units of one GPU, as the table has it.
type Claim struct {
	GPU       string
	Units     []int
	Task      Task
	Attempt   string
	Container string
	State     string
}

// Look is the table at one moment, and the containers that ran before and after it was
// read.
type Look struct {
	At            time.Time
	Before, After []Run
	Claims        []Claim
	Unreadable    []string // GPUs whose ledgers cannot be read
}

// Bounds limits the time of states through which a task passes while it starts or ends, or
// while a fault is being repaired.
type Bounds struct {
	Unclaimed time.Duration // container without a claim, on a ledger that was never disturbed
	Repaired  time.Duration // the same, counted from the repair of the ledger
	Orphan    time.Duration // claim without a running container
}

// Checker compares looks.
type Checker struct {
	bounds   Bounds
	timeline *Timeline
	bare     map[string]time.Time // containers and GPUs without a claim, since when
	orphans  map[string]time.Time // claims without a container, since when
	repaired map[string]time.Time // GPUs whose ledgers were disturbed, by the time of their repair
}

// NewChecker returns a checker that reads bookings from the timeline.
func NewChecker(bounds Bounds, timeline *Timeline) *Checker {
	return &Checker{
		bounds: bounds, timeline: timeline,
		bare: map[string]time.Time{}, orphans: map[string]time.Time{}, repaired: map[string]time.Time{},
	}
}

// Repaired records that a GPU's ledger can be read again.
func (c *Checker) Repaired(gpu string, at time.Time) { c.repaired[gpu] = at }

// See returns what is wrong in a look. A state that lasts is reported once.
func (c *Checker) See(look Look) (found []Violation) {
	found = append(found, c.unclaimed(look)...)
	found = append(found, c.orphaned(look)...)
	return append(found, c.misbooked(look)...)
}

// unclaimed finds containers that ran during the whole look on GPUs without a claim of
// their task.
func (c *Checker) unclaimed(look Look) (found []Violation) {
	bare := map[string]time.Time{}
	for _, run := range look.Before {
		if !slices.ContainsFunc(look.After, func(r Run) bool { return r.ID == run.ID && r.From.Equal(run.From) }) {
			continue
		}
		for _, gpu := range run.GPUs {
			if slices.Contains(look.Unreadable, gpu) || claimed(look.Claims, run.Task, gpu) {
				continue
			}
			key := run.ID + " " + gpu
			since, known := c.bare[key]
			if !known {
				since = look.At
			}
			bare[key] = since
			if due(since, look.At, c.grace(gpu, since)) {
				bare[key] = time.Time{} // reported
				found = append(found, Violation{Kind: Unclaimed, At: since, Text: fmt.Sprintf(
					"container %s of task %s runs on GPU %s, which has no claim of the task", run.Name, run.Task, gpu)})
			}
		}
	}
	c.bare = bare
	return found
}

// grace returns how long a container may be without a claim: a moment, or, if the ledger
// was disturbed, until the driver has repeated its claims.
func (c *Checker) grace(gpu string, since time.Time) time.Duration {
	repaired, disturbed := c.repaired[gpu]
	if !disturbed {
		return c.bounds.Unclaimed
	}
	return max(c.bounds.Unclaimed, repaired.Add(c.bounds.Repaired).Sub(since))
}

// due reports whether a state exceeds its limit and was not reported yet. A zero time marks
// a reported state.
func due(since, now time.Time, bound time.Duration) bool {
	return !since.IsZero() && now.Sub(since) > bound
}

func claimed(claims []Claim, task Task, gpu string) bool {
	return slices.ContainsFunc(claims, func(c Claim) bool { return c.Task == task && c.GPU == gpu })
}

// orphaned finds claims whose tasks have no running container for too long.
func (c *Checker) orphaned(look Look) (found []Violation) {
	orphans := map[string]time.Time{}
	for _, claim := range look.Claims {
		if slices.ContainsFunc(look.After, func(r Run) bool { return r.Task == claim.Task }) {
			continue
		}
		key := claim.GPU + " " + claim.Attempt
		since, known := c.orphans[key]
		if !known {
			since = look.At
		}
		orphans[key] = since
		if due(since, look.At, c.bounds.Orphan) {
			orphans[key] = time.Time{}
			found = append(found, Violation{Kind: Orphan, At: since, Text: fmt.Sprintf(
				"units %v of GPU %s are %s by task %s (attempt %s), which has had no running container for %s",
				claim.Units, claim.GPU, claim.State, claim.Task, claim.Attempt, c.bounds.Orphan)})
		}
	}
	c.orphans = orphans
	return found
}

// misbooked finds claims of units that Nomad did not book for the task.
func (c *Checker) misbooked(look Look) (found []Violation) {
	for _, claim := range look.Claims {
		booked, known := c.timeline.Booked(claim.Task)
		if !known {
			continue
		}
		for _, unit := range claim.Units {
			if !slices.Contains(booked, Unit{claim.GPU, unit}) && c.timeline.first("misbooked", claim.GPU, claim.Attempt) {
				found = append(found, Violation{Kind: Misbooked, At: look.At, Text: fmt.Sprintf(
					"task %s claims unit %d of GPU %s, which Nomad booked for another task", claim.Task, unit, claim.GPU)})
			}
		}
	}
	return found
}
