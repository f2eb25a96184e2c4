// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/shoenig/test/must"
	"go.uber.org/goleak"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
	"nomad-gpu-mem/allocator/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		writeForEver(path)
	}
	storetest.ClientMain(func(path string) (allocator.Store, error) { return file.New(path), nil })
	goleak.VerifyTestMain(m)
}

func newStore(t testing.TB) allocator.Store { return file.New(newPath(t)) }

// newPath names a file in a directory that does not exist yet.
func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "deep", "er", "table.json") }

func TestStore(t *testing.T) {
	t.Parallel()
	operations := 500
	if testing.Short() {
		operations = 100
	}
	storetest.Run(t, newStore)
	storetest.RunTable(t, newStore, operations)
}

// Processes that are killed between any two steps, and lost, repeated and stale
// messages, leave a history that has an order.
func TestStore_many_processes(t *testing.T) {
	t.Parallel()
	operations := 200
	if testing.Short() {
		operations = 40
	}
	storetest.ProveProcesses(t, newPath(t), 4, operations)
}

func TestNew_touches_nothing(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := file.New(path)
	_, err := store.Get(t.Context(), "key")
	must.NoError(t, err)
	must.DirNotExists(t, filepath.Dir(path))
}

// The text is an interface: operators read it with cat.
func TestStore_text(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := file.New(path)
	must.NoError(t, store.Apply(t.Context(), []allocator.Write{
		{Key: "gpus/GPU-1/claims", Value: []byte(`{"version":1,"units":"aab."}`)},
		{Key: "other", Value: []byte("\x00\xff")},
	}))
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	must.Eq(t, `{
  "format": 1,
  "version": 2,
  "entries": {
    "gpus/GPU-1/claims": {
      "version": 2,
      "value": {
        "version": 1,
        "units": "aab."
      }
    },
    "other": {
      "version": 2,
      "bytes": "AP8="
    }
  }
}
`, string(text))
}

func TestStore_modes(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	must.NoError(t, file.New(path).Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("1")}}))
	must.FileMode(t, path, 0o644)
	must.FileMode(t, path+".lock", 0o600)
	must.FileNotExists(t, path+".next")
}

func TestStore_keeps_what_it_cannot_read(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":             "",
		"cut short":         `{"format":1,"version":2,"entr`,
		"not an object":     `null`,
		"of the future":     `{"format":2,"version":2,"entries":{}}`,
		"without a version": `{"format":1,"entries":{}}`,
		"entry too new":     `{"format":1,"version":2,"entries":{"key":{"version":3,"value":1}}}`,
		"entry of nothing":  `{"format":1,"version":2,"entries":{"key":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "table.json")
			must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			store := file.New(path)

			_, err := store.Get(t.Context(), "key")
			must.ErrorIs(t, err, allocator.ErrUnreadable)
			must.ErrorContains(t, err, path)
			_, _, err = store.Watch(t.Context(), 0)
			must.ErrorIs(t, err, allocator.ErrUnreadable)
			must.ErrorIs(t, store.Apply(t.Context(), []allocator.Write{{Key: "other", Value: []byte("1")}}), allocator.ErrUnreadable)

			after, err := os.ReadFile(path)
			must.NoError(t, err)
			must.Eq(t, text, string(after))
		})
	}
}

func TestStore_waits_for_the_lock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table.json")
	write := []allocator.Write{{Key: "key", Value: []byte("1")}}
	lock := flock.New(path + ".lock")
	must.NoError(t, lock.Lock())

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	must.ErrorIs(t, file.New(path).Apply(short, write), context.DeadlineExceeded)

	closing := file.New(path)
	ended := make(chan error, 1)
	go func() { ended <- closing.Apply(t.Context(), write) }()
	must.NoError(t, closing.Close())
	must.ErrorIs(t, <-ended, allocator.ErrClosed)

	go func() { ended <- file.New(path).Apply(t.Context(), write) }()
	must.NoError(t, lock.Unlock())
	must.NoError(t, <-ended)
}

// A change by another process or an operator counts at once, also if the store
// has read the file before.
func TestStore_sees_what_others_wrote(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	store := file.New(path)
	must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("1")}}))
	entry, err := store.Get(t.Context(), "key")
	must.NoError(t, err)
	must.Eq(t, "1", string(entry.Value))

	must.NoError(t, file.New(path).Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("2"), Version: entry.Version}}))
	must.ErrorIs(t, store.Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("3"), Version: entry.Version}}), allocator.ErrConflict)
	entry, err = store.Get(t.Context(), "key")
	must.NoError(t, err)
	must.Eq(t, "2", string(entry.Value))

	must.NoError(t, os.WriteFile(path, []byte(`{"format":1,"version":9,"entries":{"key":{"version":9,"value":[ 4 ]}}}`), 0o644))
	entry, err = store.Get(t.Context(), "key")
	must.NoError(t, err)
	must.Eq(t, allocator.Entry{Key: "key", Value: []byte("[4]"), Version: 9}, entry)
	must.NoError(t, os.Remove(path))
	entry, err = store.Get(t.Context(), "key")
	must.NoError(t, err)
	must.Eq(t, 0, entry.Version)
}

func TestStore_file_system_errors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	notDir := filepath.Join(dir, "plain")
	must.NoError(t, os.WriteFile(notDir, nil, 0o600))
	store := file.New(filepath.Join(notDir, "table.json"))
	_, err := store.Get(t.Context(), "key")
	must.ErrorIs(t, err, allocator.ErrUnavailable)
	must.ErrorContains(t, err, notDir)
	must.ErrorIs(t, store.Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("1")}}), allocator.ErrUnavailable)
}

// A watcher sees a change by another process, also if the directory
// did not exist when the waiting began.
func TestStore_watch_begins_before_the_file(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	watching := file.New(path)
	_, version, err := watching.Watch(t.Context(), 0)
	must.NoError(t, err)
	woken := make(chan uint64, 1)
	go func() {
		_, now, _ := watching.Watch(t.Context(), version)
		woken <- now
	}()
	must.NoError(t, file.New(path).Apply(t.Context(), []allocator.Write{{Key: "key", Value: []byte("1")}}))
	must.Greater(t, version, <-woken)
}
