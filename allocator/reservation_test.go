// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// planned is the owner of a reservation for a task of that job.
func planned(job, id string) allocator.Owner {
	return allocator.Owner{Namespace: "default", Job: job, Group: "workers", Task: "main", Alloc: id}
}

func person(id string) allocator.Owner { return allocator.Owner{Task: "ada", Alloc: id} }

func request(gpu allocator.GPUID, count int) allocator.UnitRequest {
	return allocator.UnitRequest{GPU: gpu, UnitMiB: 1024, TotalUnits: 4, Count: count}
}

// quarters is a booking of a GPU of four units.
func quarters(gpu allocator.GPUID, units ...int) allocator.Booking {
	b := bookingOf(gpu, units...)
	b.Of = 4
	return b
}

// clock is one machine's clock.
type clock struct{ time.Time }

func (c *clock) table(store allocator.Store) *allocator.Table {
	return allocator.NewTable(store, allocator.WithClock(func() time.Time { return c.Time }))
}

func TestReservation_keeps_planners_away(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Reserve(ctx, planned("a", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 3)}))
	must.NoError(t, table.Reserve(ctx, planned("a", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 3)})) // again
	err := table.Reserve(ctx, planned("b", "plan-2"), time.Minute, []allocator.UnitRequest{request("GPU-2", 1), request("GPU-1", 2)})
	must.ErrorIs(t, err, allocator.ErrNoRoom)
	must.Eq(t, []string{"plan-1: 1-3 of GPU-1"}, claimsIn(t, table))

	must.NoError(t, table.Release(ctx, planned("a", "plan-1"), "plan-1", []allocator.GPUID{"GPU-1"}))
	must.SliceEmpty(t, claimsIn(t, table))
}

func TestReservation_avoids_units(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	want := request("GPU-1", 2)
	want.Avoid = allocator.NewUnitSet(2, 3)
	must.NoError(t, table.Reserve(t.Context(), planned("a", "plan-1"), time.Minute, []allocator.UnitRequest{want}))
	must.Eq(t, []string{"plan-1: 0-1 of GPU-1"}, claimsIn(t, table))
}

// Only the task that it was made for uses a reservation up, and one claim uses
// up one.
func TestReservation_becomes_its_tasks_claim(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	for _, id := range []string{"plan-1", "plan-2"} {
		must.NoError(t, table.Reserve(ctx, planned("train", id), time.Minute, []allocator.UnitRequest{request("GPU-1", 1)}))
	}
	other := ownerOf("alloc-1")
	other.Job = "other"
	must.NoError(t, table.Claim(ctx, other, allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0)}))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1", "plan-2: 2 of GPU-1", "plan-1: 3 of GPU-1"}, claimsIn(t, table))

	for range 2 { // the second call is the same claim
		must.NoError(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 1)}))
		must.Len(t, 3, claimsIn(t, table))
	}
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-2"}, []allocator.Booking{quarters("GPU-1", 1)}))
	must.Len(t, 3, claimsIn(t, table)) // a restart needs no second reservation
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-3"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 3)}))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1", "alloc-2: 1 of GPU-1", "alloc-3: 3 of GPU-1"}, claimsIn(t, table))
}

// Nomad's booking outranks a reservation, which moves if it can and ends if not.
func TestReservation_makes_way(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Reserve(ctx, planned("later", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 2)}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 2)}))
	must.Eq(t, []string{"plan-1: 1,3 of GPU-1", "alloc-1: 2 of GPU-1"}, claimsIn(t, table))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0, 1)}))
	must.Eq(t, []string{"alloc-2: 0-1 of GPU-1", "alloc-1: 2 of GPU-1"}, claimsIn(t, table))
}

// Units of another size block other planners, but no task.
func TestReservation_of_another_unit_size(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	fine := allocator.UnitRequest{GPU: "GPU-1", UnitMiB: 512, TotalUnits: 8, Count: 5}
	must.NoError(t, table.Reserve(ctx, planned("later", "plan-1"), time.Minute, []allocator.UnitRequest{fine}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 2)}))
	must.Eq(t, []string{"alloc-1: 2 of GPU-1"}, claimsIn(t, table))
	err := table.Reserve(ctx, planned("b", "plan-2"), time.Minute, []allocator.UnitRequest{fine})
	must.ErrorIs(t, err, allocator.ErrUnitMismatch)
}

// Each reader judges by its own clock, give or take the documented skew. A
// writer with a wrong clock does not block units for long.
func TestReservation_expires(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Minute
	for name, test := range map[string]struct {
		reader time.Duration // its clock, after the writer's at the writing
		binds  bool
	}{
		"at once":                       {0, true},
		"shortly before the end":        {ttl, true},
		"within the skew":               {ttl + allocator.ClockSkew, true},
		"after the skew":                {ttl + allocator.ClockSkew + time.Second, false},
		"reader a little behind":        {-allocator.ClockSkew, true},
		"the writer's clock is wrong":   {-allocator.ClockSkew - time.Second, false},
		"the writer lives in next year": {-365 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := storetest.NewMemory()
			writer, reader := &clock{noon}, &clock{noon.Add(test.reader)}
			must.NoError(t, writer.table(store).Reserve(t.Context(), planned("a", "plan-1"), ttl, []allocator.UnitRequest{request("GPU-1", 4)}))

			snapshot, err := reader.table(store).Snapshot(t.Context())
			must.NoError(t, err)
			must.Eq(t, test.binds, len(snapshot.GPUs[0].Claims()) == 1)
			err = reader.table(store).Reserve(t.Context(), planned("b", "plan-2"), ttl, []allocator.UnitRequest{request("GPU-1", 1)})
			must.Eq(t, test.binds, err != nil)
		})
	}
}

func TestReservation_refuses(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	for name, err := range map[string]error{
		"no end":      table.Reserve(t.Context(), planned("a", "plan-1"), 0, []allocator.UnitRequest{request("GPU-1", 1)}),
		"too long":    table.Reserve(t.Context(), planned("a", "plan-1"), 2*allocator.MaxReservation, []allocator.UnitRequest{request("GPU-1", 1)}),
		"no ID":       table.Reserve(t.Context(), planned("a", ""), time.Minute, []allocator.UnitRequest{request("GPU-1", 1)}),
		"no unit":     table.Reserve(t.Context(), planned("a", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 0)}),
		"a GPU twice": table.Reserve(t.Context(), planned("a", "plan-1"), time.Minute, []allocator.UnitRequest{request("GPU-1", 1), request("GPU-1", 1)}),
	} {
		must.ErrorIs(t, err, allocator.ErrInvalid, must.Sprint(name))
	}
	must.SliceEmpty(t, claimsIn(t, table))
}

// Units are held outside Nomad in two phases: in the first a task that Nomad has
// placed may still take them, in the second no task can.
func TestRequest_and_hold(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Request(ctx, person("hold-1"), time.Minute, request("GPU-1", 2)))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 3)}))
	must.Eq(t, []string{"hold-1: 1-2 of GPU-1", "alloc-1: 3 of GPU-1"}, claimsIn(t, table))

	must.NoError(t, table.Hold(ctx, person("hold-1"), "GPU-1", 0))
	must.NoError(t, table.Hold(ctx, person("hold-1"), "GPU-1", 0))
	must.ErrorIs(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 2)}), allocator.ErrHeld)
	must.NoError(t, table.Release(ctx, person("hold-1"), "hold-1", []allocator.GPUID{"GPU-1"}))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-2"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 2)}))
}

func TestRequest_that_was_overtaken(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Request(ctx, person("hold-1"), time.Minute, request("GPU-1", 4)))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0)}))
	must.ErrorIs(t, table.Hold(ctx, person("hold-1"), "GPU-1", 0), allocator.ErrInvalid)
	must.ErrorIs(t, table.Hold(ctx, ownerOf("alloc-1"), "GPU-1", 0), allocator.ErrInvalid)
	must.ErrorIs(t, table.Running(ctx, person("hold-1"), "hold-1", "c", []allocator.GPUID{"GPU-1"}), allocator.ErrInvalid)
}

// A request expires, since its caller may have been killed.
func TestRequest_expires(t *testing.T) {
	t.Parallel()
	store := storetest.NewMemory()
	now := &clock{noon}
	table := now.table(store)
	must.ErrorIs(t, table.Request(t.Context(), person("hold-1"), 0, request("GPU-1", 4)), allocator.ErrInvalid)
	must.NoError(t, table.Request(t.Context(), person("hold-1"), time.Minute, request("GPU-1", 4)))
	now.Time = noon.Add(time.Minute + allocator.ClockSkew + time.Second)
	must.ErrorIs(t, table.Hold(t.Context(), person("hold-1"), "GPU-1", 0), allocator.ErrInvalid)
	must.NoError(t, table.Request(t.Context(), person("hold-2"), time.Minute, request("GPU-1", 4)))
}

func TestHold_expires(t *testing.T) {
	t.Parallel()
	store := storetest.NewMemory()
	now := &clock{noon}
	table := now.table(store)
	must.NoError(t, table.Request(t.Context(), person("hold-1"), time.Hour, request("GPU-1", 4)))
	now.Time = noon.Add(time.Hour) // the wait is not part of the two hours
	must.NoError(t, table.Hold(t.Context(), person("hold-1"), "GPU-1", 2*time.Hour))
	now.Time = noon.Add(2*time.Hour + allocator.ClockSkew + time.Second)
	must.ErrorIs(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0)}), allocator.ErrHeld)
	now.Time = noon.Add(3*time.Hour + allocator.ClockSkew + time.Second)
	must.NoError(t, table.Claim(t.Context(), ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0)}))
	must.Eq(t, []string{"alloc-1: 0 of GPU-1"}, claimsIn(t, table))
}

// Snapshots that follow each other share what did not change, and what was
// deleted is gone.
func TestSnapshot_decodes_what_changed(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{quarters("GPU-1", 0), quarters("GPU-2", 0)}))
	first, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.NoError(t, table.Release(ctx, ownerOf("alloc-1"), "start-1", []allocator.GPUID{"GPU-2"}))
	second, err := table.Watch(ctx, first.Version)
	must.NoError(t, err)
	must.True(t, first.GPUs[0].Ledger == second.GPUs[0].Ledger)
	must.Len(t, 1, first.GPUs[1].Claims())
	must.SliceEmpty(t, second.GPUs[1].Claims())

	entry, err := store.Get(ctx, allocator.ClaimsKey("GPU-2"))
	must.NoError(t, err)
	must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: entry.Key, Version: entry.Version}}))
	third, err := table.Watch(ctx, second.Version)
	must.NoError(t, err)
	must.Len(t, 1, third.GPUs)
}
