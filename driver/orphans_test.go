// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/driver/taskfile"
)

// Claims of tasks that went down with the machine are freed; those of tasks that
// still run, or may yet be asked for, are not.
func TestSweep(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name      string
		age, up   time.Duration
		over      bool
		container string // "" or its status
		another   bool   // process of the plugin may be at work
		settled   bool
	}{
		{"over", 0, 0, true, "running", false, true},
		{"over, another process at work", 0, 0, true, "running", true, true},
		{"killed in its start", time.Minute, time.Minute, false, "", false, true},
		{"killed in its start, just now", time.Minute, time.Second, false, "", false, false},
		{"killed before its container ran", time.Minute, time.Minute, false, "created", false, true},
		{"start under way elsewhere", time.Minute, time.Hour, false, "", true, false},
		{"start under way elsewhere, container created", time.Minute, time.Hour, false, "created", true, false},
		{"container gone with the node", time.Hour, time.Minute, false, "", false, true},
		{"container gone, start under way elsewhere", time.Hour, 0, false, "", true, false},
		{"running", time.Hour, time.Hour, false, "running", false, false},
		{"exited, may be recovered", time.Hour, time.Minute, false, "exited", false, true},
		{"exited, start under way elsewhere", time.Hour, time.Minute, false, "exited", true, false},
		{"exited, not recovered", time.Hour, time.Hour, false, "exited", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := attempt.Record{
				ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, GPUs: []allocator.GPUID{gpuA},
				Begun: now.Add(-c.age), Over: c.over,
			}
			must.NoError(t, w.table.Claim(t.Context(), a.Owner, allocator.Attempt{ID: a.ID}, []allocator.Booking{slice(gpuA, 1)}))
			if c.container != "" {
				w.engine.put("c1", "x", c.container)
			}
			k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir, Began: now.Add(-c.up)}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
			other := attempt.NewInstanceLock(w.stateDir)
			t.Cleanup(other.Close)
			t.Cleanup(k.Instance.Close)
			if c.another {
				other.Sole(now)
			}
			k.Instance.Sole(k.Since)
			must.NoError(t, k.Journal.Write(a))
			must.NoError(t, k.Locks.Lock(t.Context(), "x"))
			k.Sweep(t.Context(), now)
			must.SliceLen(t, 1, w.claims(), must.Sprint("another holder has the lock"))
			k.Locks.Unlock("x")
			k.Sweep(t.Context(), now)
			must.Eq(t, c.settled, len(w.claims()) == 0)
		})
	}
}

// A container that has ended holds no units, however often the plugin begins again before Nomad asks how it ended.
func TestUnitsOfAnEndedContainerAreReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	handle, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	must.NoError(t, w.engine.Stop(t.Context(), "c1", "", 0))

	d = w.boot()
	s, err := d.plugin.serving()
	must.NoError(t, err)
	eventually(t, func() bool {
		s.reaper.Sweep(t.Context(), time.Now().Add(2*attempt.ResidueAge))
		return len(w.claims()) == 0
	})
	must.Eq(t, 1, w.engine.count())
	must.NoError(t, d.RecoverTask(handle))
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.Eq(t, 143, (<-results).ExitCode)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

// A start that is cut short by the plugin's end leaves what it has staged. While that is there, Nomad cannot remove the
// allocation's directory.
func TestStagedSourcesOfAnEarlierProcessAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := attempt.NewReaper(quiet(), attempt.Options{StateDir: w.stateDir, Began: time.Now()}, w.engine, w.table, staging.New(w.stateDir, noMounts{}))
	t.Cleanup(k.Instance.Close)
	a := attempt.Record{ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, Begun: time.Now()}
	must.NoError(t, k.Journal.Write(a))
	w.engine.put("c1", "x", "running")
	dir := t.TempDir()
	must.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	alloc, err := taskfile.OpenDir(dir)
	must.NoError(t, err)
	defer alloc.Close()
	held, err := alloc.Hold("data")
	must.NoError(t, err)
	defer held.Close()
	staged, err := k.Staging.Stage("x", 0, held)
	must.NoError(t, err)

	other := attempt.NewInstanceLock(w.stateDir)
	other.Sole(time.Now())
	k.Sweep(t.Context(), time.Now())
	must.DirExists(t, staged, must.Sprint("an earlier process may be about to start the container"))
	other.Close()
	must.NoError(t, k.Locks.Lock(t.Context(), "x"))
	k.Sweep(t.Context(), time.Now())
	must.DirExists(t, staged, must.Sprint("a start of this process needs it"))
	k.Locks.Unlock("x")
	k.Sweep(t.Context(), time.Now())
	must.DirNotExists(t, staged)
	must.SliceLen(t, 1, w.engine.running())
}

// What was cut short long ago goes; what may be under way stays.
// A process that is gone yields to its successor, which knows since when.
func TestDanglingContainersAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	_, _, err := d.StartTask(w.task(``))
	must.NoError(t, err)
	s, err := d.plugin.serving()
	must.NoError(t, err)
	w.engine.put("stray", "gone", "running")
	w.engine.put("unborn", "gone", "created")
	w.engine.put("ended", "gone", "exited")
	w.engine.put("committed", "gone", "running")
	w.engine.change(func() { w.engine.containers["committed"].Mounts = nil }) // runs an image that was made of a task
	w.engine.change(func() {
		w.engine.containers["foreign"] = &fakeContainer{Container: docker.Container{
			ID: "foreign", Name: "web-" + allocID, Status: "running", Running: true, Labels: map[string]string{"com.hashicorp.nomad.alloc_id": allocID},
			Mounts: map[string]string{"/alloc": "/a", "/local": "/l", "/secrets": "/s"},
		}}
	}) // Nomad's own driver's
	for id, node := range map[string]string{"own": "node", "elsewhere": "another node"} {
		w.engine.put(id, "gone", "running")
		w.engine.change(func() { w.engine.containers[id].Labels[label.Node] = node })
	}
	young := time.Now()
	w.engine.put("young", "gone", "running")
	w.engine.change(func() { w.engine.containers["young"].CreatedAt = young })
	s.removeAllDangling(t.Context(), young.Add(time.Minute)) // creation_grace is five
	must.Eq(t, []string{"c1", "committed", "elsewhere", "ended", "foreign", "young"}, w.engine.ids())

	s.removeAllDangling(t.Context(), time.Now().Add(time.Hour))
	must.Eq(t, []string{"c1", "committed", "elsewhere", "foreign"}, w.engine.ids(), must.Sprint("Nomad had the time to ask how a task ended"))
}

// The sweeper looks at a container's attempt each time that the dangling loop does, since the periods are multiples of
// each other. That saves no container, and no claim.
func TestDanglingWhileTheSweeperLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	earlier := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(earlier)
	must.NoError(t, err)
	d.kill()

	d = w.boot()
	s, err := d.plugin.serving()
	must.NoError(t, err)
	must.True(t, s.reaper.Locks.LockBriefly(t.Context(), earlier.ID))
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.reaper.Locks.Unlock(earlier.ID)
	}()
	s.removeAllDangling(t.Context(), time.Now().Add(time.Hour))
	must.Eq(t, 0, w.engine.count())
	s.reaper.Sweep(t.Context(), time.Now().Add(2*time.Hour)) // later than the first look, which began the time as sole process
	must.SliceEmpty(t, w.claims())
}

// A node whose data_dir was removed registers under another ID. The tasks that it ran before
// are recorded here, so they are its own, and hold no units for ever.
func TestTasksOfThisNodeUnderAnEarlierID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	earlier := w.task(``, slice(gpuA, 3))
	earlier.NodeID = "an earlier ID"
	_, _, err := d.StartTask(earlier)
	must.NoError(t, err)
	d.kill()

	d = w.boot()
	later := w.task(``)
	later.NodeID, later.AllocID = "another ID", "another-allocation"
	_, _, err = d.StartTask(later)
	must.NoError(t, err)
	s, err := d.plugin.serving()
	must.NoError(t, err)
	s.removeAllDangling(t.Context(), time.Now().Add(time.Hour)) // beside the sweeper
	must.Eq(t, 1, w.engine.count())
	s.reaper.Sweep(t.Context(), time.Now().Add(2*time.Hour))
	must.SliceEmpty(t, w.claims())
}

// What is run of an image that was committed from a task has its labels, and is
// another's.
func TestCommittedImagesAreNoTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.put("committed", task.ID, "running")
	w.engine.change(func() { w.engine.containers["committed"].Mounts = map[string]string{"/local": "/srv/x/local"} })
	must.NoError(t, d.DestroyTask(task.ID, true))
	must.Eq(t, []string{"committed"}, w.engine.ids())
	must.SliceEmpty(t, w.claims())
}

// A task may be destroyed without having been stopped, by this process or an earlier
// one: a container that outlives that for minutes is stuck, too.
func TestContainerThatOutlivesItsEndIsStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 3))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	w.engine.fail("Remove", docker.ErrStuck)
	must.Error(t, d.DestroyTask(task.ID, true))
	d.kill()
	s, err := w.boot().plugin.serving()
	must.NoError(t, err)
	// The plugin's own sweeper may have the attempt just then.
	sweptAt := func(after time.Duration, err error) {
		eventually(t, func() bool {
			return errors.Is(s.reaper.Retry(t.Context(), task.ID, time.Now().Add(after)), err)
		})
	}
	sweptAt(time.Minute, docker.ErrStuck)
	must.SliceEmpty(t, w.stuck())
	w.engine.setAway(true) // then nothing is known of it
	sweptAt(attempt.StuckAge, docker.ErrUnavailable)
	must.SliceEmpty(t, w.stuck())
	w.engine.setAway(false)
	sweptAt(attempt.StuckAge, docker.ErrStuck)
	must.Eq(t, []allocator.GPUID{gpuA}, w.stuck())

	w.engine.fail("Remove", nil)
	w.nothingLeft()
	must.SliceEmpty(t, w.stuck())
}

func TestDanglingContainersAreOnlyReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = "gc {\n dangling_containers {\n dry_run = true\n }\n}"
	s, err := w.boot().plugin.serving()
	must.NoError(t, err)
	w.engine.put("stray", "gone", "running")
	s.removeAllDangling(t.Context(), time.Now().Add(time.Hour))
	must.Eq(t, []string{"stray"}, w.engine.ids())
}

// A full file system takes an empty file, and no record.
