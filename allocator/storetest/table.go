// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// The world of the random tests: small, so that tasks meet often.
const (
	gpuCount  = 3
	unitCount = 8
	unitMiB   = 1024
	taskCount = 6
	// attemptCount is how many attempts of a task there are, each newer than those
	// before it. They come in any order: an old one may be late.
	attemptCount = 3
)

// RunTable tests an allocator.Table over a store: random operations, one after
// the other, against a model; then many at once, on a store that loses answers
// and repeats requests, whose history must be linearizable; then many tasks at
// once. It makes so many random operations.
func RunTable(t *testing.T, newStore func(t testing.TB) allocator.Store, operations int) {
	t.Run("random operations do what the model does", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		table := allocator.NewTable(Verify(t, store))
		var state State
		for n := range operations {
			op := generate(random)
			have, err := op.perform(t.Context(), table)
			must.NoError(t, err, must.Sprintf("operation %d: %+v", n, op))
			next, want := state.apply(op)
			must.Eq(t, want, have.Result, must.Sprintf("operation %d: %+v", n, op))
			read, err := Operation{Kind: opRead}.perform(t.Context(), table)
			must.NoError(t, err)
			must.Eq(t, next, read.State, must.Sprintf("after operation %d: %+v", n, op))
			state = next
		}
	})
	t.Run("a history of many clients is linearizable", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		Prove(t, store, 6, operations/6)
	})
	t.Run("a history of clients of one table is linearizable", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		ProveTogether(t, store, 6, operations/6)
	})
	for what, value := range map[string]string{"nonsense": "nonsense", "of a newer version": `{"version":2}`} {
		t.Run("a ledger that cannot be read harms no other GPU: "+what, func(t *testing.T) {
			store := newStore(t)
			defer store.Close()
			testIsolation(t, store, value)
		})
	}
	t.Run("many tasks at once", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		ManyTasks(t, store, 5)
	})
}

// ManyTasks has many tasks start and end at once, each so many times, on units
// of one or two GPUs that others want too. The store may be unavailable for a
// while: the tasks repeat what they wanted, as the task driver does. No unit
// may change hands without a release, and in the end all must be free.
func ManyTasks(t *testing.T, store allocator.Store, lives int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	table, used := allocator.NewTable(verifyCombined(t, store)), newOccupancy()
	failed := make([]error, taskCount)
	var all sync.WaitGroup
	for number := range taskCount {
		all.Go(func() {
			for life := range lives {
				failed[number] = errors.Join(failed[number], live(ctx, table, used, number, life))
			}
		})
	}
	all.Wait()
	must.NoError(t, errors.Join(failed...))

	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.Problems)
	for _, gpu := range snapshot.GPUs {
		must.SliceEmpty(t, gpu.Claims())
	}
}

// live is one start of a task, from the claim to the release.
func live(ctx context.Context, table *allocator.Table, used *occupancy, number, life int) error {
	owner, attempt := owner(number), fmt.Sprintf("attempt-%d", life)
	on := []allocator.GPUID{gpu(number % gpuCount), gpu((number + life) % gpuCount)}
	slices.Sort(on)
	on = slices.Compact(on)
	first := (number + life) % (unitCount - 2)
	var bookings []allocator.Booking
	for _, gpu := range on {
		bookings = append(bookings, booking(gpu, allocator.NewUnitSet(first, first+1, first+2)))
	}
	claim := func() error {
		return table.Claim(ctx, owner, allocator.Attempt{ID: attempt, Begun: begun(life)}, bookings)
	}
	if err := patiently(ctx, table, claim); err != nil {
		return err
	}
	if err := used.enter(number, bookings); err != nil {
		return err
	}
	run := func() error { return table.Running(ctx, owner, attempt, "container", on) }
	if err := patiently(ctx, table, run); err != nil {
		return err
	}
	used.leave(bookings)
	return patiently(ctx, table, func() error { return table.Release(ctx, owner, attempt, on) })
}

// patiently repeats a step: while others hold the units, once the table
// changed; while the store is unavailable, after a pause.
func patiently(ctx context.Context, table *allocator.Table, step func() error) error {
	var version uint64
	for {
		err := step()
		switch {
		case errors.Is(err, allocator.ErrHeld):
			if snapshot, err := table.Watch(ctx, version); err == nil {
				version = snapshot.Version
			}
		case errors.Is(err, allocator.ErrUnavailable):
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		default:
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

func owner(number int) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: fmt.Sprintf("job-%d", number), Group: "group", Task: "task",
		Alloc: fmt.Sprintf(taskFormat, number), Node: "node", NodeName: "host",
	}
}

// begun is when an attempt began.
func begun(attempt int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, attempt, 0, time.UTC)
}

// planned is the owner of a reservation for the task.
func planned(number int) allocator.Owner {
	o := owner(number)
	o.Alloc = fmt.Sprintf(planFormat, number)
	return o
}

// How tasks, reservations and GPUs are called.
const (
	taskFormat = "%08d-alloc"
	planFormat = "plan-%d"
	gpuFormat  = "GPU-%04d"
)

func gpu(number int) allocator.GPUID { return allocator.GPUID(fmt.Sprintf(gpuFormat, number)) }

func booking(gpu allocator.GPUID, units allocator.UnitSet) allocator.Booking {
	return allocator.Booking{GPU: gpu, UnitMiB: unitMiB, Of: unitCount, TotalMiB: unitMiB * unitCount, Units: units}
}
