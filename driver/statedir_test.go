// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/images"
	"nomad-gpu-mem/driver/logpipe"
	"nomad-gpu-mem/driver/statefile"
)

const (
	goldenAlloc   = "1b2c3d4e-5f0e-4e6b-9a3c-2d1b0c9f8e7d"
	goldenAttempt = goldenAlloc + "/model/7aa3c0de"
	goldenNode    = "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c"
)

// stateOfFirstFormat is a state_dir as the plugin wrote it before records had versions.
func stateOfFirstFormat(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "state"))))
	return dir
}

// makeNewer gives all records of a state_dir the form of a later version, in which nothing but the version is where this
// one looks for it, and returns their texts by path.
func makeNewer(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"attempts/*.json", "logs/*.json", "images.json", "node_id"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		must.NoError(t, err)
		must.SliceNotEmpty(t, paths, must.Sprint(pattern))
		for _, path := range paths {
			texts[path] = `{"id": {"new": 1}, "images": 7, "position": "` + strings.Repeat("x", 600) + `", "version": 2}`
			must.NoError(t, os.WriteFile(path, []byte(texts[path]), 0o600))
		}
	}
	return texts
}

// An upgrade reads what earlier versions wrote, and what is written since has a version.
func TestUpgradeOfStateDir(t *testing.T) {
	t.Parallel()
	dir := stateOfFirstFormat(t)
	now := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

	journal := attempt.OpenJournal(dir)
	all, err := journal.All()
	must.NoError(t, err)
	want := attempt.Record{
		ID: goldenAttempt, GPUs: []allocator.GPUID{"GPU-4f1a"},
		Owner: allocator.Owner{
			Namespace: "default", Job: "chat", Group: "serve", Task: "model", Alloc: goldenAlloc, Node: goldenNode, NodeName: "gpu-node-1",
		},
		Units: map[allocator.GPUID]allocator.UnitSet{"GPU-4f1a": allocator.NewUnitSet(0, 1, 2, 5)},
		Begun: now, Boot: "boot", Engine: "engine", Over: true, Ended: now.Add(time.Hour),
	}
	must.Eq(t, []attempt.Record{want}, all)
	must.NoError(t, journal.Write(want))
	again, found, err := journal.Read(goldenAttempt)
	must.NoError(t, err)
	must.True(t, found)
	must.Eq(t, want, again)

	saved, position, err := logpipe.OpenCheckpoints(dir).Open(goldenAttempt, "9f8e")
	must.NoError(t, err)
	saved.Close()
	must.Eq(t, docker.LogPosition{Stdout: docker.LogMark{Time: now, Count: 3}, Stderr: docker.LogMark{Time: now, Count: 1}}, position)

	notes := images.NotesIn(dir)
	images, err := notes.Read()
	must.NoError(t, err)
	must.Eq(t, []string{"sha256:a", "sha256:b"}, images)
	must.NoError(t, notes.Write(slices.Values(images)))

	node, err := attempt.OpenNode(dir)
	must.NoError(t, err)
	must.Eq(t, goldenNode, node.ID())
	node.Learn(allocator.Owner{Node: "another"}, nil)
	node, err = attempt.OpenNode(dir)
	must.NoError(t, err)
	must.Eq(t, "another", node.ID())

	for _, path := range []string{journal.Path(goldenAttempt), filepath.Join(dir, "images.json"), filepath.Join(dir, "node_id")} {
		text, err := os.ReadFile(path)
		must.NoError(t, err)
		must.StrHasPrefix(t, `{"version":1,`, string(text))
	}
}

// After a downgrade the records of the newer version are reported, and stay as they are.
func TestDowngradeOfStateDir(t *testing.T) {
	t.Parallel()
	dir := stateOfFirstFormat(t)
	texts := makeNewer(t, dir)
	refused := func(err error) {
		t.Helper()
		must.ErrorIs(t, err, statefile.ErrNewer)
		must.ErrorContains(t, err, "written by a newer version, upgrade the plugin")
		must.ErrorContains(t, err, dir)
	}
	journal := attempt.OpenJournal(dir)
	_, err := journal.List()
	refused(err)
	_, found, err := journal.Read(goldenAttempt)
	must.False(t, found)
	refused(err)
	must.False(t, errors.Is(err, attempt.ErrDamaged), must.Sprint("damaged records are removed"))
	refused(journal.Write(attempt.Record{ID: goldenAttempt, Owner: allocator.Owner{Alloc: goldenAlloc}}))
	must.NoError(t, journal.Remove(goldenAttempt))

	logs := logpipe.OpenCheckpoints(dir)
	saved, position, err := logs.Open(goldenAttempt, "9f8e")
	refused(err)
	must.Nil(t, saved)
	must.Eq(t, docker.LogPosition{}, position)
	must.NoError(t, logs.Remove(goldenAttempt))
	must.NoError(t, logs.Sweep(func() ([]string, error) { return nil, nil }))

	notes := images.NotesIn(dir)
	_, err = notes.Read()
	refused(err)
	refused(notes.Write(slices.Values([]string{"sha256:c"})))

	node, err := attempt.OpenNode(dir)
	refused(err)
	must.Eq(t, "", node.ID())
	node.Learn(allocator.Owner{Node: goldenNode}, nil)
	must.Eq(t, goldenNode, node.ID(), must.Sprint("it is known to this process"))

	for path, want := range texts {
		text, err := os.ReadFile(path)
		must.NoError(t, err)
		must.Eq(t, want, string(text), must.Sprint(path))
	}
}
