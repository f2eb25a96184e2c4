// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMemory(testing.TB) allocator.Store { return storetest.NewMemory() }

func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newMemory)
	storetest.RunTable(t, newMemory, 1000)
}

func TestMemory_fails_when_told(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	write := []allocator.Write{{Key: "key", Value: []byte("value")}}
	store := storetest.NewMemory()
	outage := errors.New("outage")

	store.Fail(outage)
	_, err := store.Get(ctx, "key")
	must.ErrorIs(t, err, outage)
	_, _, err = store.Watch(ctx, 0)
	must.ErrorIs(t, err, outage)
	must.ErrorIs(t, store.Apply(ctx, write), outage)
	store.Fail(nil)

	store.FailApply(allocator.ErrUnavailable, false)
	store.FailApply(allocator.ErrUnavailable, true)
	must.ErrorIs(t, store.Apply(ctx, write), allocator.ErrUnavailable)
	entry, err := store.Get(ctx, "key")
	must.NoError(t, err)
	must.Zero(t, entry.Version)
	must.ErrorIs(t, store.Apply(ctx, write), allocator.ErrUnavailable)
	must.ErrorIs(t, store.Apply(ctx, write), allocator.ErrConflict) // it was made
}

// Answers that are lost and conflicts that are none change nothing for tasks:
// they repeat what they wanted.
func TestManyTasks_on_a_store_that_fails(t *testing.T) {
	t.Parallel()
	store := storetest.NewMemory()
	for n := range 200 {
		switch n % 3 {
		case 0:
			store.FailApply(allocator.ErrUnavailable, true)
		case 1:
			store.FailApply(allocator.ErrUnavailable, false)
		case 2:
			store.FailApply(allocator.ErrConflict, false)
		}
	}
	storetest.ManyTasks(t, store, 20)
}

// recorder keeps a test's complaints for another to look at.
type recorder struct {
	testing.TB
	complaints int
}

func (r *recorder) Errorf(string, ...any) { r.complaints++ }

func TestVerify_finds_a_stolen_unit(t *testing.T) {
	t.Parallel()
	ledger := func(alloc string) []byte {
		return []byte(`{"version":1,"unit_mib":1,"units":"a.","claims":{"a":{"alloc":"` + alloc + `","task":"t","claimed_at":"2026-01-01T00:00:00Z"}}}`)
	}
	apply := func(values ...[]byte) int {
		seen := &recorder{TB: t}
		store := storetest.Verify(seen, storetest.NewMemory())
		for _, value := range values {
			entry, err := store.Get(t.Context(), "gpus/X/claims")
			must.NoError(t, err)
			must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: entry.Key, Value: value, Version: entry.Version}}))
		}
		return seen.complaints
	}
	must.Eq(t, 0, apply(ledger("one"), ledger("one"), nil, ledger("two")))
	must.Eq(t, 1, apply(ledger("one"), ledger("two")))
	must.Eq(t, 1, apply([]byte("nonsense")))
}
