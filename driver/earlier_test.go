// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/staging"
)

// taskContainer puts a container of a task into the engine that no plugin made there.
func (w *world) taskContainer(id, name string, labels map[string]string) {
	w.engine.change(func() {
		w.engine.containers[id] = &fakeContainer{Container: docker.Container{
			ID: id, Name: name, Status: "running", Running: true, Labels: labels, CreatedAt: time.Now().Add(-time.Hour),
			Mounts: map[string]string{"/alloc": "/a/" + allocID + "/alloc", "/local": "/a/" + allocID + "/app/local"},
		}}
	})
}

// Two starts of a task hold the same units: the later one ends what the earlier one left,
// by whatever name it goes.
func TestStartEndsEarlierStarts(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"this driver's":    {label.Alloc: allocID, label.Attempt: "earlier"},
		"Nomad's own":      {label.BuiltinAlloc: allocID},
		"with both labels": {label.Alloc: allocID, label.Attempt: "earlier", label.BuiltinAlloc: allocID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			w.taskContainer("old", "renamed", labels)
			w.engine.fail("Remove", docker.ErrStuck)
			_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
			must.ErrorContains(t, err, "an earlier start of the task may still run")
			must.True(t, structs.IsRecoverable(err))
			must.Eq(t, []string{"old"}, w.engine.ids())

			w.engine.fail("Remove", nil)
			_, _, err = d.StartTask(w.task(``, slice(gpuA, 1)))
			must.NoError(t, err)
			must.Eq(t, []string{"c1"}, w.engine.ids())
		})
	}
}

// What looks like an earlier start, and is another's, is left alone.
func TestStartEndsNoOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.taskContainer("committed", "a", map[string]string{label.Alloc: allocID, label.Attempt: "earlier"})
	w.engine.change(func() { w.engine.containers["committed"].Mounts = nil }) // runs an image that was made of the task
	w.taskContainer("sibling", "b", map[string]string{label.Alloc: allocID, label.Attempt: "sibling"})
	w.engine.change(func() { w.engine.containers["sibling"].Mounts["/local"] = "/a/" + allocID + "/other/local" })
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	must.Eq(t, []string{"c1", "committed", "sibling"}, w.engine.ids())
}

// A start that Nomad has given up ends when Nomad starts the task again, and takes
// nothing of the second start with it.
func TestStartCancelsTheOneBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	engine := &hangingEngine{fakeEngine: w.engine, hangs: make(chan struct{})}
	w.open = func(docker.Config) (Engine, error) { return engine, nil }
	d := w.boot()
	first, second := w.task(``, slice(gpuA, 1)), w.task(``, slice(gpuA, 1))
	ended := make(chan error, 1)
	go func() {
		_, _, err := d.plugin.StartTask(first)
		ended <- err
	}()
	<-engine.hangs
	must.SliceLen(t, 1, w.claims())
	_, _, err := d.StartTask(second)
	must.NoError(t, err)
	must.Error(t, <-ended)
	must.SliceLen(t, 1, w.engine.running())
	must.Eq(t, second.ID, w.engine.running()[0].Labels[label.Attempt])
	must.Eq(t, []string{"GPU-aaaa: " + allocID + " 1 running"}, w.claims())
	must.NoError(t, d.DestroyTask(second.ID, true))
	w.nothingLeft()
}

// An agent that crashes can leave its process of the plugin behind, in the middle of a start. The next process ends that start
// before it starts the task again, and the first one, which does not know, starts no container then.
func TestStartThatAnotherProcessHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := &lateCreate{fakeEngine: w.engine, hangs: make(chan struct{}), goOn: make(chan struct{})}
	open := w.open
	w.open = func(docker.Config) (Engine, error) { return slow, nil }
	before := w.boot()
	first, second := w.task(``, slice(gpuA, 1)), w.task(``, slice(gpuA, 1))
	ended := make(chan error, 1)
	go func() {
		_, _, err := before.plugin.StartTask(first)
		ended <- err
	}()
	<-slow.hangs
	w.open = open
	d := w.boot()
	_, _, err := d.StartTask(second)
	must.NoError(t, err)
	w.engine.change(func() { // by an operator, so that the name does not collide
		for _, c := range w.engine.containers {
			c.Name = "renamed"
		}
	})
	close(slow.goOn)
	must.ErrorContains(t, <-ended, attempt.ErrEnded.Error())
	must.Eq(t, 0, slow.starts.Load())
	must.SliceLen(t, 1, w.engine.running())
	must.Eq(t, second.ID, w.engine.running()[0].Labels[label.Attempt])
	must.Eq(t, []string{"GPU-aaaa: " + allocID + " 1 running"}, w.claims())
	must.NoError(t, d.DestroyTask(second.ID, true))
	w.nothingLeft()
}

// lateCreate waits before its first Create.
type lateCreate struct {
	*fakeEngine
	hangs chan struct{} // closed once it waits
	goOn  chan struct{} // closed by the test
	once  sync.Once

	starts atomic.Int32
}

func (e *lateCreate) Start(ctx context.Context, id string) error {
	e.starts.Add(1)
	return e.fakeEngine.Start(ctx, id)
}

func (e *lateCreate) Create(ctx context.Context, spec docker.Spec) (string, error) {
	e.once.Do(func() {
		close(e.hangs)
		<-e.goOn
	})
	return e.fakeEngine.Create(ctx, spec)
}

// hangingEngine does not answer the first Create until its caller gives up.
type hangingEngine struct {
	*fakeEngine
	hangs chan struct{} // closed once it hangs
	calls int
}

func (e *hangingEngine) Create(ctx context.Context, spec docker.Spec) (string, error) {
	e.calls++
	if e.calls > 1 {
		return e.fakeEngine.Create(ctx, spec)
	}
	close(e.hangs)
	<-ctx.Done()
	return "", ctx.Err()
}

// A start whose answer was lost with the agent is over when Nomad starts the task again.
func TestStartEndsATaskThatNomadNeverLearnedOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	first, second := w.task(``, slice(gpuA, 1)), w.task(``, slice(gpuB, 2))
	_, _, err := d.StartTask(first)
	must.NoError(t, err)
	_, _, err = d.StartTask(second)
	must.NoError(t, err)
	must.Eq(t, []string{"c2"}, w.engine.ids())
	must.Eq(t, []string{"GPU-bbbb: " + allocID + " 2 running"}, w.claims())
	_, err = d.InspectTask(first.ID)
	must.Error(t, err)
	must.NoError(t, d.DestroyTask(second.ID, true))
	w.nothingLeft()
}

// The table may have been wiped while a task was being stopped: this node still knows
// who uses the units. So it does for a start that Nomad called before that task's, and that was held up.
func TestStartWaitsForUnitsThatOnlyThisNodeKnows(t *testing.T) {
	t.Parallel()
	for name, called := range map[string]time.Time{"called now": time.Now().Add(time.Minute), "called earlier": time.Now().Add(-time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.assert = time.Hour
			d := w.boot()
			first := w.task(``, slice(gpuA, 0, 1))
			_, _, err := d.StartTask(first)
			must.NoError(t, err)
			must.NoError(t, w.table.Release(t.Context(), attempt.OwnerOf(first), first.ID, []allocator.GPUID{gpuA}))
			second := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``, slice(gpuA, 1, 2))
			started := make(chan error, 1)
			go func() {
				_, _, err := d.plugin.startCalled(second, called)
				started <- err
			}()
			eventually(t, func() bool { return d.reported("Waiting for GPU memory") })
			must.SliceLen(t, 1, w.engine.running())
			must.NoError(t, d.DestroyTask(first.ID, true))
			must.NoError(t, <-started)
			must.Eq(t, []string{"GPU-aaaa: " + second.AllocID + " 1-2 running"}, w.claims())
		})
	}
}

// A container that has ended uses no GPU memory, whether Docker removes it or not.
func TestEndedContainerHoldsNoUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	w.engine.fail("Remove", errors.New("device or resource busy"))
	must.ErrorContains(t, d.DestroyTask(task.ID, true), "its claim is released, but Docker does not remove it")
	must.SliceEmpty(t, w.claims())
	must.Eq(t, 1, w.engine.count())

	other := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``, slice(gpuA, 3))
	_, _, err = d.StartTask(other)
	must.NoError(t, err)
	w.engine.fail("Remove", nil)
	eventually(t, func() bool { return w.engine.count() == 1 })
	must.SliceLen(t, 1, w.claims(), must.Sprint("the late removal takes nothing from the next task"))
	must.NoError(t, d.DestroyTask(other.ID, true))
	w.nothingLeft()
}

// A clock that was set back makes no start look older than the one before it.
// No container outlives the machine: after a restart another engine's word is enough, if
// the first one was here too.
func TestRestartOfTheMachineEndsContainersOfALostEngine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		boot  string
		local bool
		gone  bool
	}{
		"restarted":          {"an earlier boot", true, true},
		"same boot":          {"this boot", true, false},
		"unknown boot":       {"", true, false},
		"engine over a wire": {"an earlier boot", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir, Boot: "this boot", LocalEngine: c.local}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
			a := attempt.Record{
				ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, GPUs: []allocator.GPUID{gpuA}, Over: true,
				Engine: "engine-0", Boot: c.boot,
			}
			must.NoError(t, w.claim(a, slice(gpuA, 1)))
			must.NoError(t, k.Journal.Write(a))
			must.Eq(t, c.gone, k.Retry(t.Context(), "x", time.Now()) == nil)
			must.Eq(t, c.gone, len(w.claims()) == 0)
			must.Eq(t, c.gone, k.RefuseElsewhere(a.Owner, "engine-1") == nil)
		})
	}
}

// claim claims for an attempt as a start does.
func (w *world) claim(a attempt.Record, bookings ...allocator.Booking) error {
	return w.table.Claim(w.t.Context(), a.Owner, a.InTable(), bookings)
}

// Ended containers can be kept for operators, and give their name to the next start all
// the same.
func TestStartReplacesAKeptContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = "gc {\n container = false\n}"
	d := w.boot()
	first := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(first)
	must.NoError(t, err)
	must.NoError(t, d.StopTask(first.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(first.ID, true))
	must.Eq(t, []string{"c1"}, w.engine.ids())
	must.SliceEmpty(t, w.claims())
	_, _, err = d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	must.Eq(t, []string{"c2"}, w.engine.ids())
}
