// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
)

// A container that was not removed, and of which the daemon then says nothing, may run.
func TestUnansweredQuestionIsNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	before := w.claims()
	w.engine.fail("Remove", docker.ErrStuck)
	w.engine.fail("Inspect", docker.ErrUnavailable)
	must.ErrorContains(t, d.DestroyTask(task.ID, true), attempt.ErrMayRun.Error())
	must.Eq(t, before, w.claims())
	w.engine.fail("Remove", nil)
	w.engine.fail("Inspect", nil)
	w.nothingLeft()
}

// A task that is about to confirm its claim when it is destroyed writes none: no
// one would release it.
func TestDestroyedTaskConfirmsNoClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	h, found := d.plugin.tasks.get(task.ID)
	must.True(t, found)
	must.NoError(t, d.DestroyTask(task.ID, true))
	must.NoError(t, h.confirmClaim(w.table))
	must.SliceEmpty(t, w.claims())
}
