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
)

// RunTable tests an allocator.Table over a store: random operations, one after
// the other, against a model; then many tasks at once. It makes so many random
// operations.
func RunTable(t *testing.T, newStore func(t testing.TB) allocator.Store, operations int) {
	t.Run("random operations do what the model does", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		m := &model{
			table:  allocator.NewTable(Verify(t, store)),
			random: rand.New(rand.NewPCG(seed, 0)),
			tasks:  map[int]*task{},
		}
		for n := range operations {
			what, err := m.step(t.Context())
			must.NoError(t, err, must.Sprintf("operation %d: %s", n, what))
			must.NoError(t, m.compare(t.Context()), must.Sprintf("after operation %d: %s", n, what))
		}
	})
	t.Run("many tasks at once", func(t *testing.T) {
		store := newStore(t)
		defer store.Close()
		testManyTasks(t, allocator.NewTable(Verify(t, store)))
	})
}

// testManyTasks has all tasks claim, run and release at once, on one or two
// GPUs each. The verifier finds a unit that two held; in the end all is free.
func testManyTasks(t *testing.T, table *allocator.Table) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	failed := make([]error, taskCount)
	var all sync.WaitGroup
	for number := range taskCount {
		all.Go(func() { failed[number] = liveManyTimes(ctx, table, number) })
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

func liveManyTimes(ctx context.Context, table *allocator.Table, number int) error {
	owner := owner(number)
	for life := range 5 {
		attempt := fmt.Sprintf("attempt-%d", life)
		gpus := []allocator.GPUID{gpu(number % gpuCount), gpu((number + life) % gpuCount)}
		slices.Sort(gpus)
		gpus = slices.Compact(gpus)
		var bookings []allocator.Booking
		for _, gpu := range gpus {
			first := (number + life) % (unitCount - 2)
			bookings = append(bookings, booking(gpu, allocator.NewUnitSet(first, first+1, first+2)))
		}
		if err := claimPatiently(ctx, table, owner, attempt, bookings); err != nil {
			return err
		}
		if err := table.Running(ctx, owner, attempt, "container", gpus); err != nil {
			return err
		}
		if err := table.Release(ctx, owner, attempt, gpus); err != nil {
			return err
		}
	}
	return nil
}

// claimPatiently claims as the task driver does: while another task holds the
// units it waits for the table to change.
func claimPatiently(ctx context.Context, table *allocator.Table, owner allocator.Owner, attempt string, bookings []allocator.Booking) error {
	var version uint64
	for {
		err := table.Claim(ctx, owner, attempt, bookings)
		if !errors.Is(err, allocator.ErrHeld) {
			return err
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		snapshot, err := table.Watch(short, version)
		cancel()
		if err == nil {
			version = snapshot.Version
		} else if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func owner(number int) allocator.Owner {
	return allocator.Owner{
		Namespace: "default", Job: "job", Group: "group", Task: "task",
		Alloc: fmt.Sprintf("%08d-alloc", number), Node: "node", NodeName: "host",
	}
}

func gpu(number int) allocator.GPUID { return allocator.GPUID(fmt.Sprintf("GPU-%04d", number)) }

func gpus() []allocator.GPUID {
	all := make([]allocator.GPUID, gpuCount)
	for number := range all {
		all[number] = gpu(number)
	}
	return all
}

func booking(gpu allocator.GPUID, units allocator.UnitSet) allocator.Booking {
	return allocator.Booking{GPU: gpu, UnitMiB: unitMiB, Of: unitCount, TotalMiB: unitMiB * unitCount, Units: units}
}
