// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/shared/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/containerspec"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// A task that Nomad's own driver started keeps running in its container. What it holds is
// claimed from now on, and its end leaves nothing behind, also over a restart.
func TestTakeOverATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	task := w.task(``, slice(gpuA, 3, 4))
	handle := w.builtinTask(task, nil)
	must.SliceEmpty(t, w.claims())

	d := w.boot()
	must.NoError(t, d.RecoverTask(handle))
	claimed := []string{string(gpuA) + ": " + task.AllocID + " 3-4 running"}
	eventually(t, func() bool { return slices.Equal(claimed, w.claims()) })
	status, err := d.InspectTask(task.ID)
	must.NoError(t, err)
	must.Eq(t, "172.17.0.5", status.NetworkOverride.IP)
	must.False(t, status.StartedAt.IsZero())
	d.kill()

	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.Eq(t, 143, (<-results).ExitCode)
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

// What went away while no driver was there is not taken over, and claims nothing.
func TestTakeOverATaskThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	handle := w.builtinTask(w.task(``, slice(gpuA, 3)), nil)
	must.NoError(t, w.engine.Remove(t.Context(), "c1"))
	must.ErrorContains(t, w.boot().RecoverTask(handle), "no such container")
	w.nothingLeft()
}

// A GPU of another device plugin is not ours to claim, and not ours to take away.
func TestTakeOverATaskWithAForeignGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	task := w.task(``)
	task.DeviceEnv[containerspec.VisibleDevices] = "GPU-of-another-plugin"
	must.NoError(t, w.boot().RecoverTask(w.builtinTask(task, nil)))
	must.SliceEmpty(t, w.claims())
}

// The process that copied the output ends, but only once the pipe has another writer:
// Nomad's log collector would take it for the end of the task.
func TestTakeOverLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	task := w.task(``)
	task.StdoutPath = logpipetest.Mkfifo(t)
	logs := logpipetest.Collect(t, task.StdoutPath)
	logger, ended := builtinLogger(t, task.StdoutPath)
	handle := w.builtinTask(task, &structs.ReattachConfig{Pid: logger})

	d := w.boot()
	must.NoError(t, d.RecoverTask(handle))
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the other driver's process still runs")
	}
	must.NoError(t, d.StopTask(task.ID, time.Second, ""))
	must.NoError(t, d.DestroyTask(task.ID, true))
	logs.End()
	must.Eq(t, "before\n", logs.Got())
	w.nothingLeft()
}

// A process that got the pid of one that has ended stays.
func TestTakeOverSparesStrangers(t *testing.T) {
	t.Parallel()
	must.NoError(t, endBuiltinLogger(os.Getpid()))
	must.NoError(t, endBuiltinLogger(0))
	must.NoError(t, endBuiltinLogger(1<<30))
}

// A group whose network Nomad's own driver has made keeps it.
func TestTakeOverANetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	id := w.builtinContainer(builtinSandbox+allocID, allocID)

	d := w.boot()
	network := d.DriverPlugin.(drivers.DriverNetworkManager)
	spec, created, err := network.CreateNetwork(allocID, &drivers.NetworkCreateRequest{})
	must.NoError(t, err)
	must.False(t, created)
	must.Eq(t, id, spec.Labels[containerspec.SandboxContainer])

	_, created, err = network.CreateNetwork("another", &drivers.NetworkCreateRequest{})
	must.NoError(t, err)
	must.True(t, created)

	must.NoError(t, network.DestroyNetwork(allocID, &drivers.NetworkIsolationSpec{})) // as after a restart of Nomad
	_, err = w.engine.Inspect(t.Context(), id)
	must.ErrorIs(t, err, docker.ErrNotFound)
}

// One that has ended holds no network any more, and is replaced by another.
func TestTakeOverANetworkThatEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	id := w.builtinContainer(builtinSandbox+allocID, allocID)
	must.NoError(t, w.engine.Stop(t.Context(), id, "", 0))

	network := w.boot().DriverPlugin.(drivers.DriverNetworkManager)
	_, created, err := network.CreateNetwork(allocID, &drivers.NetworkCreateRequest{})
	must.NoError(t, err)
	must.True(t, created)
	_, err = w.engine.Inspect(t.Context(), id)
	must.ErrorIs(t, err, docker.ErrNotFound)
}

// builtinTask runs a task as Nomad's own driver does, and returns its handle.
func (w *world) builtinTask(task *drivers.TaskConfig, logger *structs.ReattachConfig) *drivers.TaskHandle {
	w.t.Helper()
	handle := drivers.NewTaskHandle(1)
	handle.Config, handle.State = task, drivers.TaskStateRunning
	must.NoError(w.t, handle.SetDriverState(&struct {
		ReattachConfig *structs.ReattachConfig
		ContainerID    string
		DriverNetwork  *drivers.DriverNetwork
	}{logger, w.builtinContainer("app-"+task.AllocID, task.AllocID), &drivers.DriverNetwork{IP: "172.17.0.5"}}))
	return handle
}

func (w *world) builtinContainer(name, alloc string) string {
	w.t.Helper()
	id, err := w.engine.Create(w.t.Context(), docker.Spec{
		Name: name, Host: &container.HostConfig{},
		Config: &container.Config{Labels: map[string]string{label.BuiltinAlloc: alloc}},
	})
	must.NoError(w.t, err)
	must.NoError(w.t, w.engine.Start(w.t.Context(), id))
	return id
}

// builtinLogger is a process that looks like the one of Nomad's own driver, and has
// written a line.
func builtinLogger(t *testing.T, pipe string) (pid int, ended chan struct{}) {
	t.Helper()
	dir := t.TempDir()
	must.NoError(t, os.WriteFile(filepath.Join(dir, "docker_logger"), []byte("exec 3>\"$1\"; echo before >&3; read line"), 0o600))
	cmd := exec.Command("sh", "docker_logger", pipe)
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe() // that the process waits for
	must.NoError(t, err)
	must.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close() })
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = cmd.Process.Wait()
	}()
	return cmd.Process.Pid, ended
}
