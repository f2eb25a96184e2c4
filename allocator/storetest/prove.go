// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/allocator"
)

// usualFaults are those of the histories that are checked. They come often, so
// that they also come together.
var usualFaults = Faults{LostRequest: 2, LostAnswer: 2, Repeated: 5, Stale: 5}

// Prove has clients do random operations on an empty store at once, each so
// many, with faults between them and the store, and checks that the history is
// linearizable.
func Prove(t *testing.T, store allocator.Store, clients, operations int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	all := make([]*client, clients)
	failed := make([]error, clients)
	var running sync.WaitGroup
	for n := range all {
		all[n] = newClient(n, store, usualFaults, rand.New(rand.NewPCG(seed, uint64(n))), nil)
		running.Go(func() { failed[n] = all[n].run(t.Context(), operations) })
	}
	running.Wait()
	var history []call
	var injected Injected
	for n, c := range all {
		must.NoError(t, failed[n])
		history = append(history, c.calls...)
		injected.add(c.seam.injected)
	}
	checkHistory(t, history, injected)
}

// ProveTogether does what Prove does with clients that share a table, as the tasks
// of a plugin do, and without faults.
func ProveTogether(t *testing.T, store allocator.Store, clients, operations int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	table := allocator.NewTable(store)
	all := make([]*client, clients)
	failed := make([]error, clients)
	var running sync.WaitGroup
	for n := range all {
		all[n] = newClient(n, store, Faults{}, rand.New(rand.NewPCG(seed, uint64(n))), nil)
		all[n].table = table
		running.Go(func() { failed[n] = all[n].run(t.Context(), operations) })
	}
	running.Wait()
	var history []call
	for n, c := range all {
		must.NoError(t, failed[n])
		history = append(history, c.calls...)
	}
	checkHistory(t, history, Injected{})
}

// client does random operations and notes them.
type client struct {
	number int
	table  *allocator.Table
	seam   *seam
	random *rand.Rand
	calls  []call
	began  func(call) // called before each operation
	ended  func(call) // and when it has ended
}

func newClient(number int, store allocator.Store, faults Faults, random *rand.Rand, die func()) *client {
	c := &client{number: number, random: random, began: func(call) {}}
	c.seam = newSeam(store, faults, random, die)
	c.table = allocator.NewTable(c.seam)
	c.ended = func(done call) { c.calls = append(c.calls, done) }
	return c
}

func (c *client) run(ctx context.Context, operations int) error {
	var steps []Operation
	for range operations {
		for len(steps) == 0 {
			steps = generate(c.random).steps()
		}
		this := call{Client: c.number, Op: steps[0], Begin: clock()}
		steps = steps[1:]
		c.began(this)
		c.seam.begin()
		outcome, err := this.Op.perform(ctx, c.table)
		if err != nil {
			return err
		}
		if c.seam.stale && outcome.Result != unknown {
			outcome = Outcome{Result: outdated}
		}
		this.Outcome, this.End = outcome, clock()
		c.ended(this)
	}
	return nil
}

// clock is the machine's monotonic clock, which all its processes share.
func clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux has it
	}
	return now.Nano()
}
