// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/staging"
)

// rival is a task that the table gives the units of a running task to.
func rival(node allocator.NodeID) allocator.Owner {
	return allocator.Owner{Namespace: "default", Job: "other", Task: "t", Alloc: "another-alloc", Node: node}
}

// usurp has a plugin's process recover a running task whose units the table gives to
// another one, since an hour.
func (w *world) usurp(other allocator.Owner, containers ...string) (d *driver, taskID string) {
	w.t.Helper()
	d = w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(w.t, err)
	d.kill()
	must.NoError(w.t, w.table.Release(w.t.Context(), attempt.OwnerOf(task), task.ID, []allocator.GPUID{gpuA}))
	must.NoError(w.t, w.earlier().Claim(w.t.Context(), other, allocator.Attempt{ID: "1"}, []allocator.Booking{slice(gpuA, 3)}))
	for _, id := range containers {
		w.engine.put(id, "1", "running")
	}
	d = w.boot()
	must.NoError(w.t, d.RecoverTask(handle))
	return d, task.ID
}

// Two tasks that run on the same units are reported, and none is ended.
func TestCollisionIsShownAndNothingIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, _ := w.usurp(rival(""), "c2")
	eventually(t, func() bool {
		return d.reported("gives this running task's GPU memory to another task; both run on this node")
	})
	must.True(t, d.reported("held by other/t (alloc another-)"))
	must.SliceLen(t, 2, w.engine.running())
}

// A claim that an old copy of the table brought back, and whose container is gone, is
// released, and the running task has its own claim again in the same round, whichever of
// the loops comes first. There is nothing to choose between.
func TestClaimInTheWayWithoutAContainerIsReleased(t *testing.T) {
	t.Parallel()
	for name, round := range map[string]func(*services){
		"by the look at the task": func(s *services) { s.assertAll() },
		"by the look at the GPU":  func(s *services) { s.reconcileRound(&attempt.RemarkLog{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.assert = time.Hour // no round but those below
			d, task := w.usurp(rival(""))
			d.soleForLong(t)
			round(d.plugin.services.Load())
			must.Eq(t, []string{"GPU-aaaa: " + allocID + " 3 running"}, w.claims())
			must.False(t, d.reported("gives this running task's GPU memory to another task"))
			must.NoError(t, d.DestroyTask(task, true))
			w.nothingLeft()
		})
	}
}

// What this node cannot prove is for doctor to find out: it asks Nomad.
func TestClaimInTheWayOfAnotherNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, _ := w.usurp(rival("n2"))
	eventually(t, func() bool {
		return d.reported("gives this running task's GPU memory to another task; `nomad-gpu-mem doctor` shows whether the other one still exists")
	})
	must.False(t, d.reported("stop one of the two"))
	must.SliceLen(t, 1, w.claims())
}

// A process that has just begun does not know yet, and says nothing that it would take
// back in a moment.
func TestAdviceOnAClaimInTheWayWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
	t.Cleanup(k.Instance.Close)
	k.Node.Learn(allocator.Owner{Node: "node"}, []allocator.GPUID{gpuA})
	k.Instance.Sole(now)
	err := &allocator.HeldError{GPU: gpuA, Holders: []allocator.Claim{{Owner: rival("node"), Attempt: "1", State: allocator.Running}}}
	must.Eq(t, "", k.AdviceOn(t.Context(), err, k.IsYoung(now)))
	must.StrContains(t, k.AdviceOn(t.Context(), err, k.IsYoung(now.Add(attempt.ResidueAge))), "doctor")
}
