// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/staging"
)

// An orphaned claim is released. Any sign of life keeps it.
func TestReconcile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		alone    time.Duration // since this process is known to be the only one
		prepare  func(t *testing.T, w *world, k *attempt.Reaper)
		released bool
	}{
		{"it is an orphan", time.Hour, func(*testing.T, *world, *attempt.Reaper) {}, true},
		{"an earlier process may be at work", time.Second, func(*testing.T, *world, *attempt.Reaper) {}, false},
		{"it was claimed just now", time.Hour, func(t *testing.T, w *world, _ *attempt.Reaper) {
			must.NoError(t, w.table.Claim(t.Context(), allocator.Owner{Task: "app", Alloc: allocID}, allocator.Attempt{ID: "y"}, []allocator.Booking{slice(gpuA, 1)}))
		}, false},
		{"a container of its task runs", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) {
			w.taskContainer("c1", "app-"+allocID, map[string]string{label.BuiltinAlloc: allocID})
		}, false},
		{"its record is damaged", time.Hour, func(t *testing.T, _ *world, k *attempt.Reaper) {
			must.NoError(t, k.Journal.Write(attempt.Record{ID: "x", Owner: allocator.Owner{Alloc: allocID}}))
			must.NoError(t, os.WriteFile(k.Journal.Path("x"), []byte("{"), 0o600))
		}, true},
		{"its record is of a newer version", time.Hour, func(t *testing.T, _ *world, k *attempt.Reaper) {
			must.NoError(t, k.Journal.Write(attempt.Record{ID: "x", Owner: allocator.Owner{Alloc: allocID}}))
			must.NoError(t, os.WriteFile(k.Journal.Path("x"), []byte(`{"version":2,"id":[]}`), 0o600))
		}, false},
		{"its container runs, and its record is damaged", time.Hour, func(t *testing.T, w *world, k *attempt.Reaper) {
			w.engine.put("c1", "x", "running")
			must.NoError(t, k.Journal.Write(attempt.Record{ID: "x", Owner: allocator.Owner{Alloc: allocID}}))
			must.NoError(t, os.WriteFile(k.Journal.Path("x"), []byte("{"), 0o600))
		}, false},
		{"another engine had its container", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) { w.elsewhere() }, false},
		{"its container runs", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) { w.engine.put("c1", "x", "running") }, false},
		{"its container has ended", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) { w.engine.put("c1", "x", "exited") }, true},
		{"its container may be about to run", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) { w.engine.put("c1", "x", "created") }, false},
		{"the journal knows it", time.Hour, func(t *testing.T, _ *world, k *attempt.Reaper) {
			must.NoError(t, k.Journal.Write(attempt.Record{ID: "x", Owner: allocator.Owner{Alloc: allocID}}))
		}, false},
		{"its attempt is locked", time.Hour, func(t *testing.T, _ *world, k *attempt.Reaper) { must.NoError(t, k.Locks.Lock(t.Context(), "x")) }, false},
		{"the daemon is unavailable", time.Hour, func(_ *testing.T, w *world, _ *attempt.Reaper) { w.engine.setAway(true) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, now := newWorld(t), time.Now()
			owner := allocator.Owner{Task: "app", Alloc: allocID}
			must.NoError(t, w.earlier().Claim(t.Context(), owner, allocator.Attempt{ID: "x", Engine: "engine-1"}, []allocator.Booking{slice(gpuA, 1)}))
			must.NoError(t, w.table.Request(t.Context(), allocator.Owner{Task: "shell", Alloc: "person"}, time.Hour,
				allocator.UnitRequest{GPU: gpuA, UnitMiB: slice(gpuA, 1).UnitMiB, TotalUnits: slice(gpuA, 1).Of, Count: 1}))
			k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
			k.Node.Learn(allocator.Owner{Node: "node", NodeName: "node-1"}, []allocator.GPUID{gpuA})
			t.Cleanup(k.Instance.Close)
			k.Instance.Sole(now.Add(-c.alone))
			c.prepare(t, w, k)
			released, _ := k.Reconcile(t.Context(), gpuA, now)
			must.Eq(t, c.released, len(released) == 1)
			if c.released {
				must.FileNotExists(t, k.Journal.Path("x"))
			}
			want := 2
			if c.released {
				want = 1 // an operator's
			}
			must.SliceLen(t, want, w.claims())
		})
	}
}

// soleForLong makes the process one that has been the only one for an hour.
func (d *driver) soleForLong(t *testing.T) {
	t.Helper()
	tenancy := d.plugin.services.Load().reaper.Instance
	eventually(t, func() bool { _, sole := tenancy.Sole(time.Now()); return sole })
	past := time.Now().Add(-time.Hour)
	eventually(t, func() bool { // a loop of the plugin may look in between
		tenancy.Close()
		since, _ := tenancy.Sole(past)
		return since.Equal(past)
	})
}

// A claim that came back with an old copy of the table keeps no task waiting.
func TestStartReleasesWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.assert = time.Hour // the start is to be the one that looks
	must.NoError(t, w.earlier().Claim(t.Context(), allocator.Owner{Namespace: "default", Job: "gone", Task: "app", Alloc: "gone"}, allocator.Attempt{ID: "old"}, []allocator.Booking{slice(gpuA, 3)}))
	d := w.boot()
	d.soleForLong(t)
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 3)))
	must.NoError(t, err)
	must.SliceLen(t, 1, w.claims())
	eventually(t, func() bool { return d.reported("Released units 3 that gone/app (alloc gone) had left behind") })
}

// A clock that was wrong once keeps no units for longer than any other claim.
func TestClaimFromTheFutureIsReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	future := allocator.NewTable(w.store, allocator.WithClock(func() time.Time { return now.Add(24 * time.Hour) }))
	owner := allocator.Owner{Task: "app", Alloc: allocID, Node: "node"}
	must.NoError(t, future.Claim(t.Context(), owner, allocator.Attempt{ID: "x"}, []allocator.Booking{slice(gpuA, 1)}))
	k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
	t.Cleanup(k.Instance.Close)
	k.Node.Learn(owner, []allocator.GPUID{gpuA})
	k.Instance.Sole(now.Add(-time.Hour))
	released, err := k.Reconcile(t.Context(), gpuA, now)
	must.NoError(t, err)
	must.SliceLen(t, 1, released)
}
