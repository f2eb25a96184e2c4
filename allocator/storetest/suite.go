// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// patience bounds how long a test waits for something that must happen.
const patience = 30 * time.Second

// Run tests that a store implements allocator.Store. Each call of newStore returns a new,
// empty store.
func Run(t *testing.T, newStore func(t testing.TB) allocator.Store) {
	tests := []struct {
		name string
		run  func(context.Context, *testing.T, allocator.Store)
	}{
		{"an empty store has no entries", testEmpty},
		{"what is written is read", testWriteRead},
		{"any bytes are a value", testAnyBytes},
		{"a write needs the right version", testConflict},
		{"all writes are made or none", testAllOrNone},
		{"a deleted key is gone", testDelete},
		{"versions grow", testVersionsGrow},
		{"no writes change nothing", testNoWrites},
		{"watching lists by key", testWatchLists},
		{"watching wakes up", testWatchWakes},
		{"watching ends with its context", testWatchContext},
		{"a context that is done is honoured", testDoneContext},
		{"closing ends all calls", testClose},
		{"concurrent counters lose nothing", testCounters},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			store := newStore(t)
			defer func() { must.NoError(t, store.Close()) }()
			test.run(ctx, t, store)
		})
	}
}

// Keys as the table uses them.
const (
	keyA = "gpus/GPU-0a/claims"
	keyB = "gpus/GPU-0b/claims"
	keyC = "nodes/host-1"
)

func testEmpty(ctx context.Context, t *testing.T, store allocator.Store) {
	entry, err := store.Get(ctx, keyA)
	must.NoError(t, err)
	must.Eq(t, allocator.Entry{Key: keyA}, entry)

	entries, version, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	must.SliceEmpty(t, entries)
	must.Positive(t, version)
}

func testWriteRead(ctx context.Context, t *testing.T, store allocator.Store) {
	must.NoError(t, put(ctx, store, keyA, `{"a":1}`, 0))
	first := get(ctx, t, store, keyA)
	must.Eq(t, `{"a":1}`, string(first.Value))
	must.Positive(t, first.Version)

	must.NoError(t, put(ctx, store, keyA, `{"a":2}`, first.Version))
	must.Eq(t, `{"a":2}`, string(get(ctx, t, store, keyA).Value))
}

func testAnyBytes(ctx context.Context, t *testing.T, store allocator.Store) {
	values := []string{
		"", "null", `""`, `{"a": [1, 2]}`, "{}\n", "\x00\xff\xfe", `{"<&>":"\u2028\u003c"}`, `{"a":1e999,"b":"` + "\u2028" + `"}`, "plain",
	}
	for _, value := range values {
		version := get(ctx, t, store, keyA).Version
		must.NoError(t, put(ctx, store, keyA, value, version))
		have := get(ctx, t, store, keyA).Value
		must.NotNil(t, have, must.Sprintf("value %q", value))
		must.Eq(t, value, string(have))
	}
}

func testConflict(ctx context.Context, t *testing.T, store allocator.Store) {
	must.ErrorIs(t, put(ctx, store, keyA, "1", 7), allocator.ErrConflict) // is not there
	must.NoError(t, put(ctx, store, keyA, "1", 0))
	version := get(ctx, t, store, keyA).Version

	must.ErrorIs(t, put(ctx, store, keyA, "2", 0), allocator.ErrConflict) // is there
	must.ErrorIs(t, put(ctx, store, keyA, "2", version+1), allocator.ErrConflict)
	must.NoError(t, put(ctx, store, keyA, "2", version))
	must.ErrorIs(t, put(ctx, store, keyA, "3", version), allocator.ErrConflict) // was there
	must.Eq(t, "2", string(get(ctx, t, store, keyA).Value))
}

func testAllOrNone(ctx context.Context, t *testing.T, store allocator.Store) {
	must.NoError(t, put(ctx, store, keyB, "b", 0))
	b := get(ctx, t, store, keyB)

	must.ErrorIs(t, store.Apply(ctx, []allocator.Write{
		{Key: keyA, Value: []byte("a")},
		{Key: keyB, Value: []byte("other"), Version: b.Version + 1},
		{Key: keyC, Value: []byte("c")},
	}), allocator.ErrConflict)
	must.Zero(t, get(ctx, t, store, keyA).Version)
	must.Eq(t, b, get(ctx, t, store, keyB))
	must.Zero(t, get(ctx, t, store, keyC).Version)

	must.NoError(t, store.Apply(ctx, []allocator.Write{
		{Key: keyA, Value: []byte("a")},
		{Key: keyB, Version: b.Version},
		{Key: keyC, Value: []byte("c")},
	}))
	must.Eq(t, "a", string(get(ctx, t, store, keyA).Value))
	must.Zero(t, get(ctx, t, store, keyB).Version)
	must.Eq(t, "c", string(get(ctx, t, store, keyC).Value))
}

func testDelete(ctx context.Context, t *testing.T, store allocator.Store) {
	must.NoError(t, put(ctx, store, keyA, "1", 0))
	version := get(ctx, t, store, keyA).Version
	remove := func(version uint64) error {
		return store.Apply(ctx, []allocator.Write{{Key: keyA, Version: version}})
	}
	must.ErrorIs(t, remove(0), allocator.ErrConflict)
	must.ErrorIs(t, remove(version+1), allocator.ErrConflict)
	must.NoError(t, remove(version))
	must.Eq(t, allocator.Entry{Key: keyA}, get(ctx, t, store, keyA))
	must.ErrorIs(t, remove(version), allocator.ErrConflict)
	must.NoError(t, remove(0))
}

func testVersionsGrow(ctx context.Context, t *testing.T, store allocator.Store) {
	var last, lastWhole uint64
	for range 3 {
		must.NoError(t, put(ctx, store, keyA, "same", 0))
		entry := get(ctx, t, store, keyA)
		must.Greater(t, last, entry.Version) // also when the key was deleted between
		last = entry.Version

		_, whole, err := store.Watch(ctx, 0)
		must.NoError(t, err)
		must.Greater(t, lastWhole, whole)
		lastWhole = whole
		must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: keyA, Version: entry.Version}}))
	}
}

func testNoWrites(ctx context.Context, t *testing.T, store allocator.Store) {
	_, before, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	must.NoError(t, store.Apply(ctx, nil))
	_, after, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	must.Eq(t, before, after)
}

func testWatchLists(ctx context.Context, t *testing.T, store allocator.Store) {
	must.NoError(t, put(ctx, store, keyC, "c", 0))
	must.NoError(t, put(ctx, store, keyA, "a", 0))
	must.NoError(t, put(ctx, store, keyB, "", 0))
	entries, _, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	want := []allocator.Entry{get(ctx, t, store, keyA), get(ctx, t, store, keyB), get(ctx, t, store, keyC)}
	must.Eq(t, want, entries)
}

func testWatchWakes(ctx context.Context, t *testing.T, store allocator.Store) {
	_, version, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	for _, value := range []string{"1", "2", "3"} {
		seen := make(chan error, 1)
		go func() {
			seen <- watchUntil(ctx, store, &version, func(entries []allocator.Entry) bool {
				return len(entries) == 1 && string(entries[0].Value) == value
			})
		}()
		must.NoError(t, put(ctx, store, keyA, value, get(ctx, t, store, keyA).Version))
		must.NoError(t, <-seen)
	}
}

// watchUntil follows the store from version on until what it holds is good.
func watchUntil(ctx context.Context, store allocator.Store, version *uint64, good func([]allocator.Entry) bool) error {
	for {
		entries, now, err := store.Watch(ctx, *version)
		if err != nil {
			return err
		}
		*version = now
		if good(entries) {
			return nil
		}
	}
}

func testWatchContext(ctx context.Context, t *testing.T, store allocator.Store) {
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, version, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	err = watchUntil(short, store, &version, func([]allocator.Entry) bool { return false })
	must.ErrorIs(t, err, context.DeadlineExceeded)
}

func testDoneContext(ctx context.Context, t *testing.T, store allocator.Store) {
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err := store.Get(done, keyA)
	must.ErrorIs(t, err, context.Canceled)
	_, _, err = store.Watch(done, 0)
	must.ErrorIs(t, err, context.Canceled)
	must.ErrorIs(t, put(done, store, keyA, "1", 0), context.Canceled)
	must.Zero(t, get(ctx, t, store, keyA).Version)
}

func testClose(ctx context.Context, t *testing.T, store allocator.Store) {
	_, version, err := store.Watch(ctx, 0)
	must.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- watchUntil(ctx, store, &version, func([]allocator.Entry) bool { return false })
	}()
	must.NoError(t, store.Close())
	must.ErrorIs(t, <-ended, allocator.ErrClosed)
	_, err = store.Get(ctx, keyA)
	must.ErrorIs(t, err, allocator.ErrClosed)
	must.ErrorIs(t, put(ctx, store, keyA, "1", 0), allocator.ErrClosed)
	_, _, err = store.Watch(ctx, 0)
	must.ErrorIs(t, err, allocator.ErrClosed)
}

// testCounters lets many writers increment two keys in one write each. No increment is
// lost, and both keys agree.
func testCounters(ctx context.Context, t *testing.T, store allocator.Store) {
	const writers, rounds = 8, 10
	failed := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range rounds {
				failed[w] = errors.Join(failed[w], count(ctx, store))
			}
		})
	}
	all.Wait()
	must.NoError(t, errors.Join(failed...))
	for _, key := range []string{keyA, keyB} {
		must.Eq(t, strconv.Itoa(writers*rounds), string(get(ctx, t, store, key).Value))
	}
}

// count increments the numbers under two keys, and retries conflicts.
func count(ctx context.Context, store allocator.Store) error {
	for {
		var writes []allocator.Write
		for _, key := range []string{keyA, keyB} {
			entry, err := store.Get(ctx, key)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(entry.Value))
			writes = append(writes, allocator.Write{Key: key, Value: []byte(strconv.Itoa(n + 1)), Version: entry.Version})
		}
		if err := store.Apply(ctx, writes); !errors.Is(err, allocator.ErrConflict) {
			return err
		}
	}
}

func put(ctx context.Context, store allocator.Store, key, value string, version uint64) error {
	return store.Apply(ctx, []allocator.Write{{Key: key, Value: []byte(value), Version: version}})
}

func get(ctx context.Context, t *testing.T, store allocator.Store, key string) allocator.Entry {
	t.Helper()
	entry, err := store.Get(ctx, key)
	must.NoError(t, err)
	return entry
}
