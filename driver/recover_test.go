// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/statefile"
)

// Another process of the plugin takes up the same container with the same claim.
func TestRecover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3, 4))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	before := w.claims()
	d.kill()

	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	must.NoError(t, d.RecoverTask(handle), must.Sprint("once more is fine"))
	must.Eq(t, before, w.claims())
	status, err := d.InspectTask(task.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateRunning, status.State)
	must.Eq(t, "172.17.0.9", status.NetworkOverride.IP)

	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.NoError(t, d.StopTask(task.ID, time.Second, "SIGINT"))
	must.Eq(t, 143, (<-results).ExitCode)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

func TestRecoverOfATaskThatEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	must.NoError(t, w.engine.Stop(t.Context(), "c1", "", 0))

	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.Eq(t, 143, (<-results).ExitCode)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

// An unavailable daemon proves nothing: the task is recovered unseen.
func TestRecoverWhileTheDaemonIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	w.engine.setAway(true)
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	w.engine.setAway(false)
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.Eq(t, 143, (<-results).ExitCode)
	must.Eq(t, 1, w.engine.created)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

// An agent that crashes leaves its recovery running, and the next agent repeats it. Both get the answer of one recovery, and
// no second one follows the task's end.
func TestRecoverByTwoAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	w.engine.setAway(true)
	d = w.boot()
	d.plugin.pace.recovery = time.Hour // both wait for the daemon

	answers := make(chan error, 2)
	for range 2 {
		go func() { answers <- d.plugin.RecoverTask(handle) }()
	}
	time.Sleep(50 * time.Millisecond) // on a busy machine the second may be later, and then proves nothing
	w.engine.setAway(false)
	must.NoError(t, <-answers)
	must.NoError(t, <-answers)
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// The calls of an agent that crashed may end when the next one is connected: they do not count as its own.
func TestRecoverOfACrashedAgentIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	d = w.boot()
	called := time.Now()
	d.nextAgent()
	must.NoError(t, d.plugin.recoverCalled(handle, called))
	s, err := d.plugin.serving()
	must.NoError(t, err)
	s.endForgotten(t.Context(), time.Now().Add(time.Hour))
	w.nothingLeft()
}

func TestRecoverErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	handle, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	d.kill()
	d = w.boot()

	newer := handle.Copy()
	newer.Version = 2
	must.ErrorContains(t, d.RecoverTask(newer), "its handle has version 2")
	must.ErrorContains(t, d.RecoverTask(newer), statefile.ErrNewer.Error())
	garbage := handle.Copy()
	garbage.DriverState = []byte("no msgpack")
	must.ErrorContains(t, d.RecoverTask(garbage), "its handle cannot be read")
	must.NoError(t, w.engine.Remove(t.Context(), "c1"))
	must.ErrorContains(t, d.RecoverTask(handle), "no such container")
	w.nothingLeft() // the container is gone for certain, and so is its claim
}

// The daemon's absence is not the task's end.
func TestDaemonAwayIsNoExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)

	w.engine.setAway(true)
	must.ErrorContains(t, d.StopTask(task.ID, time.Second, ""), "its GPU memory stays claimed")
	w.engine.setAway(false)
	select {
	case result := <-results:
		t.Fatalf("the task ended with %+v", result)
	default:
	}
	must.SliceLen(t, 1, w.claims())
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.Eq(t, 143, (<-results).ExitCode)
}

// What cannot be released now is released later, by this process or the next.
func TestReleaseIsRetried(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{false: "same process", true: "next process"}[restart], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			task := w.task(``, slice(gpuA, 3))
			_, _, err := d.StartTask(task)
			must.NoError(t, err)
			w.store.Fail(allocator.ErrUnavailable)
			results, err := d.WaitTask(t.Context(), task.ID)
			must.NoError(t, err)
			must.NoError(t, d.StopTask(task.ID, time.Second, ""), must.Sprint("a stop needs no table"))
			<-results // Nomad destroys what it has seen to end
			eventually(t, func() bool {
				status, err := d.InspectTask(task.ID)
				return err == nil && status.State == drivers.TaskStateExited
			})
			must.ErrorContains(t, d.DestroyTask(task.ID, false), "is not released yet")
			must.Zero(t, w.engine.count())
			eventually(t, func() bool { return d.reported("The task's end is not complete, which will be tried again") })
			if restart {
				d.kill()
				w.boot()
			}
			w.store.Fail(nil)
			w.nothingLeft()
		})
	}
}

// A container that cannot be removed keeps its claim; other GPUs are not affected.
func TestStuckContainerKeepsItsClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.fail("Stop", docker.ErrStuck)
	w.engine.fail("Remove", docker.ErrStuck)
	must.ErrorContains(t, d.StopTask(task.ID, time.Second, ""), "did not stop")
	must.ErrorContains(t, d.DestroyTask(task.ID, true), "the container is not gone, so its claim stays")
	must.SliceLen(t, 1, w.claims())
	must.Eq(t, []allocator.GPUID{gpuA}, w.stuck(), must.Sprint("its GPU is not to be offered, the others are"))

	other := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``, slice(gpuB, 3))
	_, _, err = d.StartTask(other)
	must.NoError(t, err)
	w.engine.fail("Stop", nil)
	w.engine.fail("Remove", nil)
	eventually(t, func() bool { return len(w.claims()) == 1 })
	must.NoError(t, d.DestroyTask(other.ID, true))
	w.nothingLeft()
}

// A table that was wiped learns of the running tasks again.
func TestClaimsAreAsserted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	before := w.claims()
	must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuA}))
	eventually(t, func() bool { return len(w.claims()) == 1 })
	eventually(t, func() bool { return w.claims()[0] == before[0] })
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// That a claim cannot be confirmed for long is reported once, and so is the end of that.
func TestTroubleWithAClaimIsReportedOnce(t *testing.T) {
	t.Parallel()
	var h handle
	for n, round := range []struct {
		err  error
		news bool
	}{
		{nil, false}, {allocator.ErrHeld, true}, {allocator.ErrHeld, false}, {allocator.ErrUnavailable, true}, {nil, true}, {nil, false},
	} {
		must.Eq(t, round.news, h.isNews(round.err), must.Sprint("round ", n))
	}
}
