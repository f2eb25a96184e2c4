// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// elsewhere puts another, empty engine in the place of the one that runs the tasks, and
// returns how to take that back.
func (w *world) elsewhere() (back func()) {
	first := w.engine.containers
	w.engine.change(func() { w.engine.id, w.engine.containers = "engine-2", map[string]*fakeContainer{} })
	return func() { w.engine.change(func() { w.engine.id, w.engine.containers = "engine-1", first }) }
}

// That another engine does not have a container proves nothing: the claim stays, the task does
// not run a second time, and all ends well when the first engine is back.
func TestEngineIsAnotherAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	before := w.claims()
	d.kill()

	back := w.elsewhere()
	d = w.boot()
	err = d.RecoverTask(handle)
	must.ErrorContains(t, err, "it was started in engine engine-1, but endpoint leads to engine engine-2")
	must.ErrorContains(t, err, "nomad-gpu-mem release")
	eventually(t, func() bool { return d.reported("started in engine engine-1") })
	for _, again := range []string{task.ID, "a-new-start"} {
		start := task.Copy()
		start.ID = again
		_, _, err = d.StartTask(start)
		must.ErrorContains(t, err, "an earlier start of the task may still run")
	}
	must.Zero(t, w.engine.count())
	must.Eq(t, before, w.claims())
	d.kill()

	back()
	w.boot()
	w.nothingLeft()
}

// The same under a plugin that keeps running.
func TestEngineIsAnotherUnderATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	task.StdoutPath = logpipetest.Mkfifo(t)
	logs := logpipetest.Collect(t, task.StdoutPath)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	w.engine.say("c1", "before")
	eventually(t, func() bool { return logs.Got() == "before\n" })

	back := w.elsewhere()
	eventually(t, func() bool { return d.reported("Nothing is known of the task until its Docker engine is back") })
	must.ErrorContains(t, d.StopTask(task.ID, time.Second, ""), "its GPU memory stays claimed")
	must.SliceLen(t, 1, w.claims())
	back()
	w.engine.say("c1", "after")
	eventually(t, func() bool { return logs.Got() == "before\nafter\n" })
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.Eq(t, 143, (<-results).ExitCode)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

// A task that was taken up unseen does not write its claim before it is seen to run: it
// may be long dead, and its units another's.
func TestUnseenTaskClaimsNothing(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(w *world){
		"ended": func(w *world) { must.NoError(w.t, w.engine.Stop(w.t.Context(), "c1", "", 0)) },
		"gone":  func(w *world) { must.NoError(w.t, w.engine.Remove(w.t.Context(), "c1")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			task := w.task(``, slice(gpuA, 3))
			handle, _, err := d.StartTask(task)
			must.NoError(t, err)
			d.kill()
			ends(w)
			must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuA}))
			w.engine.setAway(true)
			d = w.boot()
			must.NoError(t, d.RecoverTask(handle))
			s, err := d.plugin.serving()
			must.NoError(t, err)
			for range 3 {
				s.assertAll()
			}
			must.SliceEmpty(t, w.claims())
			w.engine.setAway(false)
			results, err := d.WaitTask(t.Context(), task.ID)
			must.NoError(t, err)
			must.False(t, (<-results).Successful())
			must.SliceEmpty(t, w.claims())
			must.False(t, d.reported("another task"))
			must.NoError(t, d.DestroyTask(task.ID, false))
			w.nothingLeft()
		})
	}
}

// One that still runs claims again once it is seen.
func TestUnseenTaskClaimsWhenItIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	before := w.claims()
	d.kill()
	must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuA}))
	w.engine.setAway(true)
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	must.SliceEmpty(t, w.claims())
	w.engine.setAway(false)
	eventually(t, func() bool { now := w.claims(); return len(now) == 1 && now[0] == before[0] })
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// Nomad recovers one task after the other: all of them together wait for an unavailable
// daemon no longer than one would.
func TestRecoveriesShareTheirPatience(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.engine.setAway(true)
	p := w.newPlugin()
	t.Cleanup(p.Shutdown)
	p.pace.recovery = 3 * time.Second
	must.NoError(t, p.SetConfig(w.agentConfig()))
	begun := time.Now()
	for range 20 {
		task := w.task(``)
		h := newHandle(t.Context(), task, nil, "engine-1", docker.Container{ID: "c1"})
		handle, err := h.nomadHandle()
		must.NoError(t, err)
		must.NoError(t, p.RecoverTask(handle))
		h.cancel()
	}
	must.Less(t, 10*p.pace.recovery, time.Since(begun)) // twenty, one after the other
}

// An attempt that an earlier process was bringing to its end is not taken up again.
func TestEndedAttemptIsNotRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.fail("Remove", docker.ErrStuck)
	must.Error(t, d.DestroyTask(task.ID, true))
	d.kill()
	d = w.boot()
	must.ErrorContains(t, d.RecoverTask(handle), "it has ended")
	w.engine.fail("Remove", nil)
	w.nothingLeft()
}
