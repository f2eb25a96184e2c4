// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
)

// A node was disconnected for so long that Nomad called its allocation lost, its claim was
// released, and its units are held by others when the node returns. The driver leaves the
// container and all claims as they are, and says what is wrong. Whether Nomad keeps this
// allocation or another, no unit is held twice and none is lost.
func TestUnitsWereSoldWhileTheNodeWasDisconnected(t *testing.T) {
	t.Parallel()
	other := allocator.Owner{
		Namespace: "default", Job: "other", Group: "g", Task: "t", Alloc: "0e4b2d41-0000-4000-8000-000000000009", Node: "n2", NodeName: "node-2",
	}
	sold := allocator.Attempt{ID: "sold", Begun: time.Now()}
	scene := func(t *testing.T) (w *world, d *driver, taskID string) {
		w = newWorld(t)
		w.assert = time.Hour // the node does not reach the table
		d = w.boot()
		task := w.task(``, slice(gpuA, 0, 1))
		handle, _, err := d.StartTask(task)
		must.NoError(t, err)
		must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuA}))
		must.NoError(t, w.table.Claim(t.Context(), other, sold, []allocator.Booking{slice(gpuA, 1, 2)}))
		d.kill()
		w.assert = 10 * time.Millisecond // it does again
		d = w.boot()
		must.NoError(t, d.RecoverTask(handle))
		eventually(t, func() bool { return d.reported("The table gives this running task's GPU memory to another task") })
		must.SliceLen(t, 1, w.engine.running())
		must.SliceLen(t, 1, w.claims())
		return w, d, task.ID
	}
	theirs := "GPU-aaaa: " + other.Alloc + " 1-2 claimed"

	t.Run("Nomad keeps the replacement", func(t *testing.T) {
		t.Parallel()
		w, d, task := scene(t)
		must.NoError(t, d.DestroyTask(task, true))
		must.SliceEmpty(t, w.engine.running())
		must.Eq(t, []string{theirs}, w.claims())
	})
	t.Run("Nomad keeps the original", func(t *testing.T) {
		t.Parallel()
		w, d, task := scene(t)
		must.NoError(t, w.table.Release(t.Context(), other, sold.ID, []allocator.GPUID{gpuA}))
		eventually(t, func() bool {
			return slices.ContainsFunc(w.claims(), func(claim string) bool { return strings.Contains(claim, " 0-1 running") })
		})
		must.SliceLen(t, 1, w.claims())
		must.NoError(t, d.DestroyTask(task, true))
		w.nothingLeft()
	})
	t.Run("another task of the node gets the units", func(t *testing.T) {
		t.Parallel()
		w, d, task := scene(t)
		must.NoError(t, w.table.Release(t.Context(), other, sold.ID, []allocator.GPUID{gpuA}))
		next := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``, slice(gpuA, 0, 1))
		started := make(chan error, 1)
		go func() {
			_, _, err := d.StartTask(next)
			started <- err
		}()
		eventually(t, func() bool { return d.reported("Waiting for GPU memory") })
		must.SliceLen(t, 1, w.engine.running())
		must.NoError(t, d.DestroyTask(task, true))
		must.NoError(t, <-started)
		must.Eq(t, []string{"GPU-aaaa: " + next.AllocID + " 0-1 running"}, w.claims())
	})
}
