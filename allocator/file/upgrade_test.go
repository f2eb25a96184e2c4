// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/file"
)

const goldenGPU = allocator.GPUID("GPU-4f1a9c2e-8c1b-4e0a-9d53-1c2f0e6b7a80")

// copyOf returns the path of a table with a text.
func copyOf(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table.json")
	must.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// A table of the first format, without versions in states, cordons and profiles, is read, and each value
// carries its version as soon as it changes.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/first.json")
	must.NoError(t, err)
	store := file.New(copyOf(t, golden))
	table := allocator.NewTable(store)
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.Problems)
	must.Eq(t, "550.54.15", snapshot.Nodes[0].Driver)
	gpu := snapshot.GPUs[0]
	must.Eq(t, goldenGPU, gpu.ID)
	must.Eq(t, 21, gpu.State.Units)
	must.Eq(t, "fan is to be replaced", gpu.Cordon.Reason)
	must.SliceLen(t, 2, gpu.Claims())
	profile, err := table.Profile(t.Context(), "resnet50")
	must.NoError(t, err)
	must.Eq(t, 120.5, profile.MiBPer["batch"])

	gpu.State.Health, profile.About = "for a test", "for a test"
	must.NoError(t, table.PutNode(t.Context(), snapshot.Nodes[0]))
	must.NoError(t, table.PutGPU(t.Context(), goldenGPU, gpu.State))
	must.NoError(t, table.Cordon(t.Context(), goldenGPU, "another"))
	must.NoError(t, table.PutProfile(t.Context(), "resnet50", profile))
	entries, _, err := store.Watch(t.Context(), 0)
	must.NoError(t, err)
	must.SliceLen(t, 5, entries)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Key, "/claims") {
			must.StrHasPrefix(t, `{"schema":1,`, string(entry.Value), must.Sprint(entry.Key))
		}
	}
}

// A file of a newer format is reported, and nothing is written over it.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"format":2,"version":9,"entries":{}}`, `{"entries":[1],"format":2}`} {
		path := copyOf(t, []byte(text))
		table := allocator.NewTable(file.New(path))
		_, err := table.Snapshot(t.Context())
		must.ErrorIs(t, err, allocator.ErrNewer)
		must.ErrorContains(t, err, "upgrade the plugin")
		must.StrNotContains(t, err.Error(), "move it away")
		err = table.Request(t.Context(), allocator.Owner{Alloc: "a", Task: "b"}, time.Minute, allocator.UnitRequest{GPU: goldenGPU, UnitMiB: 1, TotalUnits: 1, Count: 1})
		must.ErrorIs(t, err, allocator.ErrNewer)
		got, err := os.ReadFile(path)
		must.NoError(t, err)
		must.Eq(t, text, string(got))
	}
}
