// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
)

func TestLifeOfATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 0, 1, 2), slice(gpuB, 7))

	handle, network, err := d.StartTask(task)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateRunning, handle.State)
	must.Eq(t, "172.17.0.9", network.IP)
	must.False(t, network.AutoAdvertise)
	must.Eq(t, []string{"GPU-aaaa: " + allocID + " 0-2 running", "GPU-bbbb: " + allocID + " 7 running"}, w.claims())

	containers := w.engine.running()
	must.SliceLen(t, 1, containers)
	must.Eq(t, "app_"+allocID, containers[0].Name)
	must.Eq(t, "nvidia", containers[0].spec.Host.Runtime)
	must.SliceContains(t, containers[0].spec.Config.Env, "NVIDIA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb")
	must.SliceContains(t, containers[0].spec.Config.Env, "GPU_MEM_LIMIT_MIB=3072,1024")

	status, err := d.InspectTask(task.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateRunning, status.State)
	must.Eq(t, "GPU-aaaa,GPU-bbbb", status.DriverAttributes["gpus"])

	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.ErrorContains(t, d.DestroyTask(task.ID, false), "still running")
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	result := <-results
	must.Eq(t, 143, result.ExitCode)
	must.ErrorContains(t, result.Err, "non-zero exit code: 143")
	must.SliceLen(t, 2, w.claims(), must.Sprint("a stop gives nothing back"))

	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
	must.Error(t, d.DestroyTask(task.ID, false))
}

func TestTaskWithoutBookingSeesNoGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.engine.images["local/app:1"] = docker.Image{ID: "sha256:app", Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}}
	w.engine.runtimes = []string{"runc"} // and needs none
	d := w.boot()
	task := w.task(``)
	task.Env[containerspec.VisibleDevices] = "all"
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	spec := w.engine.running()[0].spec
	must.Eq(t, "", spec.Host.Runtime)
	must.SliceContains(t, spec.Config.Env, "NVIDIA_VISIBLE_DEVICES=void")
	must.SliceEmpty(t, w.claims())
	eventually(t, func() bool {
		return d.reported(`NVIDIA_VISIBLE_DEVICES="all" in the task's environment was replaced by "void"`)
	})
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// A step that fails leaves no container, no claim and no record behind, and says
// why: to Nomad, and in an event.
func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		sabotage    func(w *world)
		hcl         string
		want        string
		recoverable bool
	}{
		{"config", func(*world) {}, `privileged = true`, "config.privileged", false},
		{"runtime missing", func(w *world) { w.engine.runtimes = []string{"runc"} }, ``, `requested docker runtime "nvidia" was not found`, false},
		{"daemon away", func(w *world) { w.engine.setAway(true) }, ``, "docker daemon is not reachable", true},
		{"image missing", func(w *world) { w.engine.images = nil }, ``, docker.ErrImage.Error(), true},
		{"create", func(w *world) { w.engine.fail("Create", errors.New("no space")) }, ``, "no space", false},
		{"refused", func(w *world) { w.engine.fail("Create", errors.New("SHM size must be greater than 0")) }, ``, "Docker refuses config.shm_size: SHM size", false},
		{"start", func(w *world) { w.engine.fail("Start", errors.New("no such command")) }, ``, "no such command", false},
		{"start that may pass", func(w *world) { w.engine.fail("Start", docker.ErrStart) }, ``, docker.ErrStart.Error(), true},
		{"leftover of a crash", func(w *world) { w.engine.fail("Start", docker.ErrLeftover) }, ``, "5 containers in turn could not start", true},
		{"gone after its start", func(w *world) { w.engine.fail("Inspect started", docker.ErrNotFound) }, ``, "nothing is known of the container after its start", true},
		{"name taken", func(w *world) { w.engine.fail("Create", docker.ErrNameTaken) }, ``, docker.ErrNameTaken.Error(), true},
		{"device missing", func(w *world) { w.engine.fail("Start", docker.ErrDeviceMissing) }, ``, docker.ErrDeviceMissing.Error(), false},
		{"table denied", func(w *world) { w.store.FailApply(allocator.ErrDenied, false) }, ``, "permission denied", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.boot()
			c.sabotage(w)
			_, _, err := d.StartTask(w.task(c.hcl, slice(gpuA, 1)))
			must.ErrorContains(t, err, c.want)
			must.Eq(t, c.recoverable, structs.IsRecoverable(err))
			eventually(t, func() bool { return d.reported(c.want) })
			w.nothingLeft()
		})
	}
}

// A failed start whose container cannot be removed keeps its claim until it can.
func TestFailedStartKeepsItsClaimWhileTheContainerIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.engine.fail("Start", errors.New("no such command"))
	w.engine.fail("Remove", docker.ErrStuck)
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, "no such command")
	eventually(t, func() bool { return d.reported("will be tried again") })
	must.SliceLen(t, 1, w.claims())

	w.engine.fail("Remove", nil)
	w.nothingLeft()
}

// Nomad sells a stopping task's units again at once: the next start waits for them.
func TestStartWaitsForHeldUnits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	first := w.task(``, slice(gpuA, 0, 1))
	_, _, err := d.StartTask(first)
	must.NoError(t, err)

	second := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", ``, slice(gpuA, 1, 2))
	started := make(chan error, 1)
	go func() {
		_, _, err := d.StartTask(second)
		started <- err
	}()
	eventually(t, func() bool { return d.reported("Waiting for GPU memory that another task has not released yet") })
	must.SliceLen(t, 1, w.engine.running(), must.Sprint("no container without a claim"))
	must.NoError(t, d.DestroyTask(first.ID, true))
	must.NoError(t, <-started)
	must.Eq(t, []string{"GPU-aaaa: " + second.AllocID + " 1-2 running"}, w.claims())
	must.NoError(t, d.DestroyTask(second.ID, true))
	w.nothingLeft()
}

func TestStartGivesUpWaiting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		sabotage func(w *world)
		want     string
	}{
		{"units held", func(w *world) { w.hold("default") }, "units 1 of GPU GPU-aaaa are held by other/t (alloc another-)"},
		{"units held in another namespace", func(w *world) { w.hold("secret") },
			"units 1 of GPU GPU-aaaa are held by a task of another namespace"},
		{"table away", func(w *world) { w.store.Fail(allocator.ErrUnavailable) }, "allocation table is not reachable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config = `claim_timeout = "50ms"`
			d := w.boot()
			c.sabotage(w)
			_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
			must.ErrorContains(t, err, c.want)
			must.ErrorContains(t, err, "claim_timeout")
			must.True(t, structs.IsRecoverable(err))
			eventually(t, func() bool { return d.reported("Waiting for ") })
			eventually(t, func() bool { return d.reported("Task was not started: ") && d.reported(c.want) })
			must.Eq(t, c.name == "units held", d.reported("other/t") || strings.Contains(err.Error(), "other/t"))
			must.Zero(t, w.engine.count())
		})
	}
}

// hold has a task of a namespace hold a unit that the test's task wants.
func (w *world) hold(namespace string) {
	w.t.Helper()
	other := allocator.Owner{Namespace: namespace, Job: "other", Task: "t", Alloc: "another-alloc"}
	must.NoError(w.t, w.table.Claim(w.t.Context(), other, allocator.Attempt{ID: "1"}, []allocator.Booking{slice(gpuA, 1)}))
}

// A claim whose answer got lost is released with the failed start.
func TestLostAnswerOfAClaimIsNoLostUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `claim_timeout = "0s"`
	d := w.boot()
	w.store.FailApply(allocator.ErrUnavailable, true)
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.ErrorContains(t, err, allocator.ErrUnavailable.Error())
	w.nothingLeft()
}

func TestStartingTwiceIsOneStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	_, _, err = d.StartTask(task)
	must.NoError(t, err)
	must.Eq(t, 1, w.engine.created)

	// The plugin dies before Nomad learns of the start: Nomad repeats it.
	d.kill()
	d = w.boot()
	_, _, err = d.StartTask(task)
	must.NoError(t, err)
	must.Eq(t, 1, w.engine.created)
	must.SliceLen(t, 1, w.claims())
	must.NoError(t, d.DestroyTask(task.ID, true))
	w.nothingLeft()
}

// If the repeated call fails, what the first one did is taken back too.
func TestFailedRepetitionTakesBackTheFirstCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	d.kill()
	d = w.boot()
	w.engine.fail("EnsureImage", docker.ErrImage)
	_, _, err = d.StartTask(task)
	must.ErrorContains(t, err, docker.ErrImage.Error())
	w.nothingLeft()
}

// A container that an earlier start of the task left is pinned to what was booked
// then: it is replaced, never taken over.
func TestEarlierContainerIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	d.kill() // and Nomad loses its state

	d = w.boot()
	again := w.task(``, slice(gpuB, 2))
	_, _, err = d.StartTask(again)
	must.NoError(t, err)
	running := w.engine.running()
	must.SliceLen(t, 1, running)
	must.SliceContains(t, running[0].spec.Config.Env, "NVIDIA_VISIBLE_DEVICES=GPU-bbbb")
}

func TestGPUOfAnotherPluginIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	task.DeviceEnv[containerspec.VisibleDevices] = "GPU-cccc"
	_, _, err := d.StartTask(task)
	must.ErrorContains(t, err, `given GPU "GPU-cccc" by another device plugin`)
	w.nothingLeft()
}

// Bookings count only where device plugins alone can write.
func TestForgedBookingIsNoBooking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	key, value, err := slice(gpuB, 0, 1, 2).Env()
	must.NoError(t, err)
	task.Env[key] = value
	_, _, err = d.StartTask(task)
	must.NoError(t, err)
	env := w.engine.running()[0].spec.Config.Env
	must.SliceContains(t, env, containerspec.VisibleDevices+"=void")
	must.SliceNotContainsFunc(t, env, key, func(entry, key string) bool { return strings.HasPrefix(entry, key+"=") })
	must.SliceEmpty(t, w.claims())
}

func TestManyFailedStartsLeaveNoClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	w.engine.fail("Start", errors.New("broken"))
	for i := range 10 {
		_, _, err := d.StartTask(w.taskOf(fmt.Sprintf("0e4b2d41-0000-4000-8000-%012d", i), ``, slice(gpuA, i)))
		must.Error(t, err)
	}
	w.nothingLeft()
}

// After a crash of the daemon its runtime may know a container that the daemon has just
// made: then another one is made.
func TestStartOverTheLeftoverOfACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	engine := &crashedEngine{fakeEngine: w.engine, left: 2}
	w.open = func(docker.Config) (Engine, error) { return engine, nil }
	d := w.boot()
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 1)))
	must.NoError(t, err)
	must.SliceLen(t, 1, w.engine.running())
	must.Eq(t, 1, w.engine.count())
	must.Eq(t, 3, w.engine.created)
}

// crashedEngine cannot start the next few containers.
type crashedEngine struct {
	*fakeEngine
	left int
}

func (e *crashedEngine) Start(ctx context.Context, id string) error {
	if e.left > 0 {
		e.left--
		return docker.ErrLeftover
	}
	return e.fakeEngine.Start(ctx, id)
}

// A daemon that restarts costs a start time, and none of the job's restarts.
func TestStartWhileTheDaemonRestarts(t *testing.T) {
	t.Parallel()
	for _, hasSlice := range []bool{false, true} {
		w := newWorld(t)
		d := w.boot()
		d.plugin.pace.recovery = time.Minute
		var bookings []allocator.Booking
		if hasSlice {
			bookings = append(bookings, slice(gpuA, 1))
		}
		task := w.task(``, bookings...)
		w.engine.setAway(true)
		started := make(chan error, 1)
		go func() {
			_, _, err := d.StartTask(task)
			started <- err
		}()
		eventually(t, func() bool { return d.reported("Waiting for Docker") })
		w.engine.setAway(false)
		must.NoError(t, <-started)
		must.SliceLen(t, 1, w.engine.running())
	}
}

// A start can wait for long, and other tasks of its allocation run meanwhile: what it
// mounts is checked once more when it has its units.
func TestSourceOfAMountIsCheckedAfterTheWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	first := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(first)
	must.NoError(t, err)
	second := w.taskOf("0e4b2d41-0000-4000-8000-000000000002", `volumes = ["local/data:/data"]`, slice(gpuA, 1))
	data := filepath.Join(second.TaskDir().LocalDir, "data")
	must.NoError(t, os.Mkdir(data, 0o755))
	started := make(chan error, 1)
	go func() {
		_, _, err := d.StartTask(second)
		started <- err
	}()
	eventually(t, func() bool { return d.reported("Waiting for GPU memory") })
	must.NoError(t, os.Remove(data))
	must.NoError(t, os.Symlink("/etc", data))
	must.NoError(t, d.DestroyTask(first.ID, true))
	must.ErrorContains(t, <-started, "local/data")
	w.nothingLeft()
}
