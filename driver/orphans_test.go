// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
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
		{"over, whoever is at work", 0, 0, true, "running", true, true},
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
		{"exited, nobody asked", time.Hour, time.Hour, false, "exited", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := attempt{
				ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, GPUs: []allocator.GPUID{gpuA},
				Begun: now.Add(-c.age), Over: c.over,
			}
			must.NoError(t, w.table.Claim(t.Context(), a.Owner, allocator.Attempt{ID: a.ID}, []allocator.Booking{slice(gpuA, 1)}))
			if c.container != "" {
				w.engine.put("c1", "x", c.container)
			}
			k := &keeper{
				logger: quiet(), journal: openJournal(w.stateDir), custody: newCustody(), tenancy: newTenancy(w.stateDir), staging: staging.New(w.stateDir, noMounts{}),
				engine: w.engine, table: w.table, since: now.Add(-c.up),
			}
			other := newTenancy(w.stateDir)
			t.Cleanup(other.end)
			t.Cleanup(k.tenancy.end)
			if c.another {
				other.sole(now)
			}
			k.tenancy.sole(k.since)
			must.NoError(t, k.journal.write(a))
			must.NoError(t, k.custody.take(t.Context(), "x"))
			k.sweep(t.Context(), now)
			must.SliceLen(t, 1, w.claims(), must.Sprint("somebody looks after it"))
			k.custody.giveUp("x")
			k.sweep(t.Context(), now)
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
		s.keeper.sweep(t.Context(), time.Now().Add(2*residueAge))
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
	k := &keeper{
		logger: quiet(), journal: openJournal(w.stateDir), custody: newCustody(), tenancy: newTenancy(w.stateDir),
		staging: staging.New(w.stateDir, noMounts{}), engine: w.engine, table: w.table, since: time.Now(),
	}
	t.Cleanup(k.tenancy.end)
	a := attempt{ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}, Begun: time.Now()}
	must.NoError(t, k.journal.write(a))
	w.engine.put("c1", "x", "running")
	dir := t.TempDir()
	must.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	alloc, err := taskfile.OpenDir(dir)
	must.NoError(t, err)
	defer alloc.Close()
	held, err := alloc.Hold("data")
	must.NoError(t, err)
	defer held.Close()
	staged, err := k.staging.Stage("x", 0, held)
	must.NoError(t, err)

	other := newTenancy(w.stateDir)
	other.sole(time.Now())
	k.sweep(t.Context(), time.Now())
	must.DirExists(t, staged, must.Sprint("an earlier process may be about to start the container"))
	other.end()
	must.NoError(t, k.custody.take(t.Context(), "x"))
	k.sweep(t.Context(), time.Now())
	must.DirExists(t, staged, must.Sprint("a start of this process needs it"))
	k.custody.giveUp("x")
	k.sweep(t.Context(), time.Now())
	must.DirNotExists(t, staged)
	must.SliceLen(t, 1, w.engine.running())
}

func TestUnreadableRecordDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	j := openJournal(t.TempDir())
	must.NoError(t, j.write(attempt{ID: "good", Owner: allocator.Owner{Alloc: "a"}}))
	must.NoError(t, os.WriteFile(filepath.Join(j.dir, "bad.json"), []byte("{"), 0o600))
	ids, err := j.list()
	must.Eq(t, []string{"good"}, ids)
	must.ErrorContains(t, err, "bad.json")
}

// What was cut short long ago goes; what may be under way stays.
func TestJournalTidiesUp(t *testing.T) {
	t.Parallel()
	j := openJournal(t.TempDir())
	must.NoError(t, j.tidy(time.Now()), must.Sprint("nothing was written yet"))
	must.NoError(t, j.write(attempt{ID: "good", Owner: allocator.Owner{Alloc: "a"}}))
	now := time.Now()
	for name, age := range map[string]time.Duration{".old.json123": 2 * time.Hour, ".new.json123": 0} {
		path := filepath.Join(j.dir, name)
		must.NoError(t, os.WriteFile(path, nil, 0o600))
		must.NoError(t, os.Chtimes(path, now, now.Add(-age)))
	}
	must.NoError(t, j.tidy(now.Add(time.Minute)))
	must.FileNotExists(t, filepath.Join(j.dir, ".old.json123"))
	must.FileExists(t, filepath.Join(j.dir, ".new.json123"))
	ids, err := j.list()
	must.NoError(t, err)
	must.Eq(t, []string{"good"}, ids)
}

// A process that is gone makes way, and its successor knows since when.
func TestTenancy(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	first, second := newTenancy(dir), newTenancy(dir)
	since, sole := first.sole(now)
	must.True(t, sole)
	must.Eq(t, now, since)
	_, sole = second.sole(now)
	must.False(t, sole)
	first.end()
	since, sole = second.sole(now.Add(time.Minute))
	must.True(t, sole)
	must.Eq(t, now.Add(time.Minute), since)
	since, _ = second.sole(now.Add(time.Hour))
	must.Eq(t, now.Add(time.Minute), since)
	second.end()
	_, sole = newTenancy(filepath.Join(dir, "none")).sole(now)
	must.False(t, sole, must.Sprint("nothing is known where nothing can be locked"))
}

func TestDanglingContainersAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	_, _, err := d.StartTask(w.task(``))
	must.NoError(t, err)
	s, err := d.plugin.serving()
	must.NoError(t, err)
	w.engine.put("stray", "nobody", "running")
	w.engine.put("unborn", "nobody", "created")
	w.engine.put("ended", "nobody", "exited")
	w.engine.put("committed", "nobody", "running")
	w.engine.change(func() { w.engine.containers["committed"].Mounts = nil }) // runs an image that was made of a task
	w.engine.change(func() {
		w.engine.containers["foreign"] = &fakeContainer{Container: docker.Container{
			ID: "foreign", Name: "web-" + allocID, Status: "running", Running: true, Labels: map[string]string{"com.hashicorp.nomad.alloc_id": allocID},
			Mounts: map[string]string{"/alloc": "/a", "/local": "/l", "/secrets": "/s"},
		}}
	}) // Nomad's own driver's
	for id, node := range map[string]string{"own": "node", "elsewhere": "another node"} {
		w.engine.put(id, "nobody", "running")
		w.engine.change(func() { w.engine.containers[id].Labels[label.Node] = node })
	}
	young := time.Now()
	w.engine.put("young", "nobody", "running")
	w.engine.change(func() { w.engine.containers["young"].CreatedAt = young })
	d.plugin.removeAllDangling(t.Context(), s, young.Add(time.Minute)) // creation_grace is five
	must.Eq(t, []string{"c1", "committed", "elsewhere", "ended", "foreign", "young"}, w.engine.ids())

	d.plugin.removeAllDangling(t.Context(), s, time.Now().Add(time.Hour))
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
	must.True(t, s.keeper.custody.look(t.Context(), earlier.ID))
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.keeper.custody.giveUp(earlier.ID)
	}()
	d.plugin.removeAllDangling(t.Context(), s, time.Now().Add(time.Hour))
	must.Eq(t, 0, w.engine.count())
	s.keeper.sweep(t.Context(), time.Now().Add(2*time.Hour)) // later than the first look, which began the time as sole process
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
	d.plugin.removeAllDangling(t.Context(), s, time.Now().Add(time.Hour)) // beside the sweeper
	must.Eq(t, 1, w.engine.count())
	s.keeper.sweep(t.Context(), time.Now().Add(2*time.Hour))
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
			return errors.Is(s.keeper.sweepOne(t.Context(), task.ID, time.Now().Add(after)), err)
		})
	}
	sweptAt(time.Minute, docker.ErrStuck)
	must.SliceEmpty(t, w.stuck())
	w.engine.setAway(true) // then nothing is known of it
	sweptAt(stuckAge, docker.ErrUnavailable)
	must.SliceEmpty(t, w.stuck())
	w.engine.setAway(false)
	sweptAt(stuckAge, docker.ErrStuck)
	must.Eq(t, []allocator.GPUID{gpuA}, w.stuck())

	w.engine.fail("Remove", nil)
	w.nothingLeft()
	must.SliceEmpty(t, w.stuck())
}

func TestDanglingContainersAreOnlyTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = "gc {\n dangling_containers {\n dry_run = true\n }\n}"
	s, err := w.boot().plugin.serving()
	must.NoError(t, err)
	w.engine.put("stray", "nobody", "running")
	(&Plugin{logger: quiet()}).removeAllDangling(t.Context(), s, time.Now().Add(time.Hour))
	must.Eq(t, []string{"stray"}, w.engine.ids())
}

// A full file system takes an empty file, and no record.
func TestJournalProbesWithARecord(t *testing.T) {
	t.Parallel()
	j := openJournal(t.TempDir())
	must.NoError(t, j.check())
	record, err := json.Marshal(attempt{ID: "a", Owner: allocator.Owner{Alloc: "a"}, Begun: time.Now(), Ended: time.Now()})
	must.NoError(t, err)
	probe := filepath.Join(j.dir, ".writable")
	pipe := logpipetest.Mkfifo(t)
	written, err := os.OpenFile(pipe, os.O_RDWR, 0)
	must.NoError(t, err)
	defer written.Close()
	must.NoError(t, os.Symlink(pipe, probe))
	must.NoError(t, j.check())
	must.NoError(t, written.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = io.ReadFull(written, record)
	must.NoError(t, err)

	must.NoError(t, os.Symlink("/dev/full", probe))
	must.ErrorIs(t, j.check(), syscall.ENOSPC)
	must.NoError(t, j.check(), must.Sprint("the probe does not stay in the way"))
}
