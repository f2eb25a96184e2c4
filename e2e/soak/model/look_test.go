// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

var bounds = Bounds{Unclaimed: 5 * time.Second, Repaired: 2 * time.Minute, Orphan: 12 * time.Minute}

// history is a checker and its observations.
type history struct {
	*Checker
	timeline *Timeline
}

func newHistory() history {
	timeline := NewTimeline()
	return history{NewChecker(bounds, timeline), timeline}
}

// look passes the running containers and these claims to the checker.
func (h history) look(second int, claims ...Claim) []Kind {
	return h.kinds(Look{At: at(second), Before: h.timeline.Running(), After: h.timeline.Running(), Claims: claims})
}

func (h history) kinds(look Look) (kinds []Kind) {
	for _, v := range h.See(look) {
		kinds = append(kinds, v.Kind)
	}
	return kinds
}

// claimOf is a claim of the allocation's task.
func claimOf(alloc string, numbers ...int) Claim {
	return Claim{GPU: gpu, Units: numbers, Task: Task{alloc, "app"}, Attempt: alloc + "/1", State: "running"}
}

func TestContainerWithoutClaim(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.timeline.Started(of("a", "1"), at(0))
	must.SliceEmpty(t, h.look(1, claimOf("a", 0)))
	must.SliceEmpty(t, h.look(2))
	must.SliceEmpty(t, h.look(7)) // five seconds
	must.Eq(t, []Kind{Unclaimed}, h.look(8))
	must.SliceEmpty(t, h.look(9)) // reported
	must.SliceEmpty(t, h.look(10, claimOf("a", 0)))
	must.SliceEmpty(t, h.look(11))
	must.Eq(t, []Kind{Unclaimed}, h.look(17)) // another time
}

// A container that started or ended during the look proves nothing.
func TestContainerThatDidNotRunAllThroughTheLook(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.timeline.Started(of("a", "1"), at(0))
	run := h.timeline.Running()
	for _, look := range []Look{{At: at(0), Before: run}, {At: at(60), Before: run}, {At: at(120), After: run}} {
		must.SliceEmpty(t, h.kinds(look))
	}
}

// An unreadable ledger proves nothing, and after its repair the driver has time to claim
// again.
func TestContainerOnADisturbedLedger(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.timeline.Started(of("a", "1"), at(0))
	run := h.timeline.Running()
	for second := range 300 {
		must.SliceEmpty(t, h.kinds(Look{At: at(second), Before: run, After: run, Unreadable: []string{gpu}}))
	}
	h.Repaired(gpu, at(300))
	must.SliceEmpty(t, h.look(301))
	must.SliceEmpty(t, h.look(420))
	must.Eq(t, []Kind{Unclaimed}, h.look(421))
}

func TestClaimWithoutContainer(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.timeline.Started(of("a", "1"), at(0))
	must.SliceEmpty(t, h.look(1, claimOf("a", 0)))
	h.timeline.Ended("1", at(2))
	for second := 3; second <= 723; second += 60 {
		must.SliceEmpty(t, h.look(second, claimOf("a", 0)))
	}
	must.Eq(t, []Kind{Orphan}, h.look(724, claimOf("a", 0)))
	must.SliceEmpty(t, h.look(725, claimOf("a", 0))) // reported
	must.SliceEmpty(t, h.look(800))
}

func TestClaimOfOtherUnitsThanBooked(t *testing.T) {
	t.Parallel()
	h := newHistory()
	h.timeline.Started(of("a", "1"), at(0))
	must.SliceEmpty(t, h.look(1, claimOf("a", 7))) // not known yet
	h.timeline.Book(Task{"a", "app"}, units(0, 1))
	must.SliceEmpty(t, h.look(2, claimOf("a", 0, 1)))
	must.Eq(t, []Kind{Misbooked}, h.look(3, claimOf("a", 1, 2)))
	must.SliceEmpty(t, h.look(4, claimOf("a", 1, 2))) // reported
}

// Every invariant has a line in the report.
func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Double, Unclaimed, Orphan, Misbooked, Exposed, Overwritten, Lost} {
		must.True(t, slices.Contains(Kinds, kind), must.Sprint(kind))
	}
}
