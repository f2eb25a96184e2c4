// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/docker"
)

func TestCheckpoint(t *testing.T) {
	t.Parallel()
	all := OpenCheckpoints(t.TempDir())
	c, position, err := all.Open("a/app/1", "c1")
	must.NoError(t, err)
	must.Eq(t, docker.LogPosition{}, position)
	defer c.Close()

	for count := range 3 {
		want := docker.LogPosition{Stdout: docker.LogMark{Time: time.Unix(5, 7).UTC(), Count: 12 - 5*count}}
		must.NoError(t, c.Save(want))
		again, position, err := all.Open("a/app/1", "c1")
		must.NoError(t, err)
		must.Eq(t, want, position)
		again.Close()
	}
	for _, other := range []struct{ attempt, container string }{{"a/app/1", "c2"}, {"a/app/2", "c1"}} {
		c, position, err := all.Open(other.attempt, other.container)
		must.NoError(t, err)
		must.Eq(t, docker.LogPosition{}, position, must.Sprint("another container begins at its beginning"))
		c.Close()
	}
	for path, mode := range map[string]fs.FileMode{all.dir: fs.ModeDir | 0o700, all.path("a/app/1"): 0o600} {
		info, err := os.Stat(path)
		must.NoError(t, err)
		must.Eq(t, mode, info.Mode(), must.Sprint(path))
	}
}

// A file that was cut off is reported and replaced.
func TestDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"version":`, "\x00\x00"} {
		all := OpenCheckpoints(t.TempDir())
		must.NoError(t, os.MkdirAll(all.dir, 0o700))
		must.NoError(t, os.WriteFile(all.path("a"), []byte(text), 0o600))
		c, position, err := all.Open("a", "c")
		must.Error(t, err, must.Sprint(text))
		must.Eq(t, docker.LogPosition{}, position)
		must.NoError(t, c.Save(docker.LogPosition{Stdout: docker.LogMark{Count: 3}}))
		c.Close()
		c, position, err = all.Open("a", "c")
		must.NoError(t, err)
		must.Eq(t, 3, position.Stdout.Count)
		c.Close()
	}
}

func TestCheckpointNames(t *testing.T) {
	t.Parallel()
	all := OpenCheckpoints("/state")
	must.Eq(t, "/state/logs/a%2Fapp%2F1.json", all.path("a/app/1"))
	long := strings.Repeat("x", 250)
	seen := map[string]bool{}
	for _, id := range []string{"a/../../etc/x", "..", ".", "a/b", "a%2Fb", long + "1", long + "2", strings.Repeat("ü", 100)} {
		path := all.path(id)
		must.Eq(t, "/state/logs", filepath.Dir(path), must.Sprint(id))
		must.LessEq(t, 255, len(filepath.Base(path)))
		must.False(t, seen[path], must.Sprint(id))
		seen[path] = true
	}
}

// Checkpoints go with their attempts; those of attempts without a record are swept.
func TestCheckpointsAreSwept(t *testing.T) {
	t.Parallel()
	all := OpenCheckpoints(t.TempDir())
	list := func(err error, ids ...string) func() ([]string, error) {
		return func() ([]string, error) { return ids, err }
	}
	must.NoError(t, all.Sweep(list(nil)), must.Sprint("no directory"))
	for _, id := range []string{"a/app/1", "b/app/1", "c/app/1"} {
		c, _, err := all.Open(id, "c")
		must.NoError(t, err)
		c.Close()
	}
	must.NoError(t, all.Remove("b/app/1"))
	must.NoError(t, all.Remove("b/app/1"))
	must.NoError(t, all.Sweep(list(errors.New("unreadable"), "a/app/1")))
	must.Len(t, 2, files(t, all.dir), must.Sprint("an unreadable record may be any attempt's"))
	must.NoError(t, all.Sweep(list(nil, "a/app/1", "d/app/1")))
	must.Eq(t, []string{"a%2Fapp%2F1.json"}, files(t, all.dir))
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		must.NoError(t, err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
