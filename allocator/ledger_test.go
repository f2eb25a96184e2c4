// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// exported compares claims by what others see of them.
var exported = must.Cmp(cmpopts.IgnoreUnexported(allocator.Claim{}))

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// ownerOf is a task of an allocation with that ID.
func ownerOf(alloc string) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: "train", Group: "workers", Task: "main",
		Alloc: alloc, Node: "node-id", NodeName: "host-1",
	}
}

// decoded returns the ledger as the next reader sees it.
func decoded(t *testing.T, l *allocator.Ledger) *allocator.Ledger {
	t.Helper()
	value, err := l.Encode()
	must.NoError(t, err)
	back, err := allocator.DecodeLedger(value)
	must.NoError(t, err)
	return back
}

func emptyLedger(t *testing.T) *allocator.Ledger {
	t.Helper()
	l, err := allocator.DecodeLedger(nil)
	must.NoError(t, err)
	return l
}

func claim(t *testing.T, l *allocator.Ledger, alloc, attempt string, units ...int) {
	t.Helper()
	changed, err := l.Claim(ownerOf(alloc), allocator.Attempt{ID: attempt}, bookingOf("GPU-1", units...), noon)
	must.NoError(t, err)
	must.True(t, changed)
}

func TestLedger_life_of_a_claim(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	claim(t, l, "alloc-1", "start-1", 0, 1)
	l = decoded(t, l)
	want := allocator.Claim{
		Owner: ownerOf("alloc-1"), Attempt: "start-1", State: allocator.Claimed,
		ClaimedAt: noon, Units: allocator.NewUnitSet(0, 1),
	}
	must.Eq(t, []allocator.Claim{want}, l.Claims(), exported)

	changed, err := l.Run(ownerOf("alloc-1"), "start-1", "container-1", noon.Add(time.Second))
	must.NoError(t, err)
	must.True(t, changed)
	l = decoded(t, l)
	want.State, want.Container, want.RunningAt = allocator.Running, "container-1", noon.Add(time.Second)
	must.Eq(t, []allocator.Claim{want}, l.Claims(), exported)

	must.True(t, l.Stuck(ownerOf("alloc-1"), "start-1", noon.Add(time.Minute)))
	must.False(t, l.Stuck(ownerOf("alloc-1"), "start-1", noon.Add(time.Hour)), must.Sprint("the first time counts"))
	must.False(t, l.Stuck(ownerOf("alloc-1"), "start-2", noon), must.Sprint("another attempt"))
	must.False(t, l.Stuck(ownerOf("alloc-2"), "start-1", noon), must.Sprint("no claim"))
	l = decoded(t, l)
	want.StuckAt = noon.Add(time.Minute)
	must.Eq(t, []allocator.Claim{want}, l.Claims(), exported)

	must.True(t, l.Release(ownerOf("alloc-1"), "start-1"))
	must.SliceEmpty(t, decoded(t, l).Claims())
}

// Everything may be repeated: the answer to it may have been lost.
func TestLedger_repetition_changes_nothing(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	owner := ownerOf("alloc-1")
	claim(t, l, "alloc-1", "start-1", 0, 1)
	repeat := func() {
		t.Helper()
		changed, err := l.Claim(owner, allocator.Attempt{ID: "start-1"}, bookingOf("GPU-1", 0, 1), noon.Add(time.Hour))
		must.NoError(t, err)
		must.False(t, changed)
	}
	repeat()
	for _, want := range []bool{true, false} {
		changed, err := l.Run(owner, "start-1", "container-1", noon)
		must.NoError(t, err)
		must.Eq(t, want, changed)
	}
	repeat() // does not make it younger than it is
	must.Eq(t, allocator.Running, l.Claims()[0].State)
	must.True(t, l.Release(owner, "start-1"))
	must.False(t, l.Release(owner, "start-1"))
}

// A restarted task adopts its claim, also with other units.
func TestLedger_next_attempt(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	owner := ownerOf("alloc-1")
	claim(t, l, "alloc-1", "start-1", 0, 1)
	_, err := l.Run(owner, "start-1", "container-1", noon)
	must.NoError(t, err)

	claim(t, l, "alloc-1", "start-2", 1, 2)
	claims := decoded(t, l).Claims()
	must.Len(t, 1, claims)
	must.Eq(t, allocator.NewUnitSet(1, 2), claims[0].Units)
	must.Eq(t, allocator.Claimed, claims[0].State)
	must.Eq(t, "", claims[0].Container)

	must.False(t, l.Release(owner, "start-1")) // late, of the old attempt
	must.Len(t, 1, l.Claims())
	_, err = l.Run(owner, "start-1", "container-1", noon)
	must.ErrorIs(t, err, allocator.ErrInvalid)
}

func TestLedger_units_of_others(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	claim(t, l, "1111111122222222", "start-1", 0, 1, 2)
	claim(t, l, "alloc-2", "start-1", 4, 5)
	before, err := l.Encode()
	must.NoError(t, err)

	_, err = l.Claim(ownerOf("alloc-3"), allocator.Attempt{ID: "start-1"}, bookingOf("GPU-1", 1, 2, 3, 4), noon)
	must.ErrorIs(t, err, allocator.ErrHeld)
	held, ok := errors.AsType[*allocator.HeldError](err)
	must.True(t, ok)
	must.Eq(t, allocator.NewUnitSet(1, 2, 4), held.Units)
	must.Len(t, 2, held.Holders)
	must.Eq(t, allocator.NewUnitSet(0, 1, 2), held.Holders[0].Units)
	must.EqError(t, err, "units 1-2,4 of GPU GPU-1 are held by train/main (alloc 11111111), train/main (alloc alloc-2)")

	after, err := l.Encode()
	must.NoError(t, err)
	must.Eq(t, string(before), string(after))
}

func TestLedger_unit_size(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	claim(t, l, "alloc-1", "start-1", 0)
	other := bookingOf("GPU-1", 5)
	other.UnitMiB = 512
	_, err := l.Claim(ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, other, noon)
	must.ErrorIs(t, err, allocator.ErrUnitMismatch)
	must.ErrorContains(t, err, "512 MiB")

	must.True(t, l.Release(ownerOf("alloc-1"), "start-1"))
	_, err = l.Claim(ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, other, noon) // no other claim conflicts now
	must.NoError(t, err)
}

// A GPU may have fewer units than before: more is reserved, or it is in another
// mode. Tasks that run on units that it had keep them.
func TestLedger_fewer_units(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	claim(t, l, "alloc-1", "start-1", 7)
	smaller := bookingOf("GPU-1", 0)
	smaller.Of = 4
	_, err := l.Claim(ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, smaller, noon)
	must.NoError(t, err)
	claims := decoded(t, l).Claims()
	must.Len(t, 2, claims)
	must.Eq(t, allocator.NewUnitSet(7), claims[1].Units)
}

func TestLedger_refuses(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	_, err := l.Claim(allocator.Owner{Job: "job"}, allocator.Attempt{ID: "start-1"}, bookingOf("GPU-1", 0), noon)
	must.ErrorIs(t, err, allocator.ErrInvalid)
	_, err = l.Claim(ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, bookingOf("GPU-1", 8), noon)
	must.ErrorIs(t, err, allocator.ErrInvalid)
	_, err = l.Run(ownerOf("alloc-1"), "start-1", "container", noon)
	must.ErrorIs(t, err, allocator.ErrInvalid)
	must.SliceEmpty(t, decoded(t, l).Claims())
}

// Every unit of the largest GPU may be a claim of its own.
func TestLedger_as_many_claims_as_units(t *testing.T) {
	t.Parallel()
	l := emptyLedger(t)
	const units = 400
	for unit := range units {
		one := bookingOf("GPU-1", unit)
		one.Of = units
		_, err := l.Claim(ownerOf(string(rune('A'+unit))), allocator.Attempt{ID: "start-1"}, one, noon)
		must.NoError(t, err)
	}
	must.Len(t, units, decoded(t, l).Claims())
}

// Those who may know the tasks of one namespace learn of others only that they are there.
func TestHeldError_for_a_namespace(t *testing.T) {
	t.Parallel()
	err := &allocator.HeldError{GPU: "GPU-1", Units: allocator.NewUnitSet(1, 2), Holders: []allocator.Claim{
		{Owner: ownerOf("alloc-1")},
		{Owner: allocator.Owner{Namespace: "theirs", Job: "secret", Task: "t", Alloc: "alloc-2"}},
		{Owner: allocator.Owner{Namespace: "others", Job: "secret", Task: "t", Alloc: "alloc-3"}},
		{Owner: allocator.Owner{Job: "outside", Task: "alice", Alloc: "alloc-4"}, State: allocator.Held},
	}}
	must.Eq(t, "units 1-2 of GPU GPU-1 are held by train/main (alloc alloc-1), secret/t (alloc alloc-2), secret/t (alloc alloc-3), "+
		"outside/alice (alloc alloc-4)", err.Error())
	must.Eq(t, "units 1-2 of GPU GPU-1 are held by train/main (alloc alloc-1), a task of another namespace, a claim outside Nomad",
		err.ErrorFor("default"))
}
