// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

func TestUnreadableRecordDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	j := OpenJournal(t.TempDir())
	must.NoError(t, j.Write(Record{ID: "good", Owner: allocator.Owner{Alloc: "a"}}))
	must.NoError(t, os.WriteFile(filepath.Join(j.dir, "bad.json"), []byte("{"), 0o600))
	ids, err := j.List()
	must.Eq(t, []string{"good"}, ids)
	must.ErrorContains(t, err, "bad.json")
}

func TestJournalTidiesUp(t *testing.T) {
	t.Parallel()
	j := OpenJournal(t.TempDir())
	must.NoError(t, j.tidy(time.Now()), must.Sprint("nothing was written yet"))
	must.NoError(t, j.Write(Record{ID: "good", Owner: allocator.Owner{Alloc: "a"}}))
	now := time.Now()
	for name, age := range map[string]time.Duration{".old.json123": 2 * time.Hour, ".new.json123": 0} {
		path := filepath.Join(j.dir, name)
		must.NoError(t, os.WriteFile(path, nil, 0o600))
		must.NoError(t, os.Chtimes(path, now, now.Add(-age)))
	}
	must.NoError(t, j.tidy(now.Add(time.Minute)))
	must.FileNotExists(t, filepath.Join(j.dir, ".old.json123"))
	must.FileExists(t, filepath.Join(j.dir, ".new.json123"))
	ids, err := j.List()
	must.NoError(t, err)
	must.Eq(t, []string{"good"}, ids)
}

func TestJournalProbesWithARecord(t *testing.T) {
	t.Parallel()
	j := OpenJournal(t.TempDir())
	must.NoError(t, j.Check())
	record, err := json.Marshal(Record{ID: "a", Owner: allocator.Owner{Alloc: "a"}, Begun: time.Now(), Ended: time.Now()})
	must.NoError(t, err)
	probe := filepath.Join(j.dir, ".writable")
	pipe := logpipetest.Mkfifo(t)
	written, err := os.OpenFile(pipe, os.O_RDWR, 0)
	must.NoError(t, err)
	defer written.Close()
	must.NoError(t, os.Symlink(pipe, probe))
	must.NoError(t, j.Check())
	must.NoError(t, written.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = io.ReadFull(written, record)
	must.NoError(t, err)

	must.NoError(t, os.Symlink("/dev/full", probe))
	must.ErrorIs(t, j.Check(), syscall.ENOSPC)
	must.NoError(t, j.Check(), must.Sprint("the probe does not stay in the way"))
}
func TestStartsAreOrderedWithoutTheClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := NewReaper(quiet(), Options{StateDir: t.TempDir()}, nil, nil, nil)
	owner := allocator.Owner{Alloc: allocID, Task: "app"}
	must.Eq(t, now, k.BegunAfter(owner, now))
	must.NoError(t, k.Journal.Write(Record{ID: "1", Owner: owner, Begun: now.Add(time.Hour)}))
	must.NoError(t, k.Journal.Write(Record{ID: "2", Owner: allocator.Owner{Alloc: allocID, Task: "other"}, Begun: now.Add(2 * time.Hour)}))
	next := k.BegunAfter(owner, now)
	must.True(t, next.After(now.Add(time.Hour)))
	must.True(t, next.Before(now.Add(2*time.Hour)))
}
