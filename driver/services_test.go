// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/testutils"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
	"nomad-gpu-mem/driver/staging"
)

// realWorld is a world with the Docker engine at DOCKER_HOST, which has NVIDIA's
// runtime and two simulated GPUs.
func realWorld(t *testing.T) *world {
	t.Helper()
	must.NotEq(t, "", os.Getenv("DOCKER_HOST"), must.Sprint("run these tests by `make test-driver`"))
	w := newWorld(t)
	w.mounts = staging.Kernel{}
	t.Cleanup(func() { _ = w.mounts.Unmount(filepath.Join(w.stateDir, "staging")) })
	w.open = func(c docker.Config) (Engine, error) { return docker.New(c) }
	w.config += fmt.Sprintf("\ninfra_image = %q", os.Getenv("GPU_MEM_TEST_PAUSE_IMAGE"))
	return w
}

func testGPUs(t *testing.T) (first, second allocator.GPUID) {
	t.Helper()
	uuids := strings.Fields(os.Getenv("GPU_MEM_TEST_GPUS"))
	must.SliceLen(t, 2, uuids)
	return allocator.GPUID(uuids[0]), allocator.GPUID(uuids[1])
}

// script is a task that runs a shell script and whose output is collected.
func (w *world) script(script, hcl string, bookings ...allocator.Booking) (*drivers.TaskConfig, *logpipetest.Collector) {
	w.t.Helper()
	task := w.taskOf(uuid.Generate(), ``, bookings...)
	config := configtest.Task(w.t, fmt.Sprintf("command = \"/bin/sh\"\nargs = [\"-c\", %q]\n%s", script, hcl))
	if config.Image == "local/app:1" {
		config.Image = os.Getenv("GPU_MEM_TEST_IMAGE")
	}
	must.NoError(w.t, task.EncodeConcreteDriverConfig(config))
	dirs := task.TaskDir()
	for _, dir := range []string{filepath.Join(dirs.SharedAllocDir, "data"), dirs.LogDir, dirs.SecretsDir} {
		must.NoError(w.t, os.MkdirAll(dir, 0o755))
	}
	task.StdoutPath = logpipetest.Mkfifo(w.t)
	return task, logpipetest.Collect(w.t, task.StdoutPath)
}

// run starts a task and has it destroyed with the test.
func (d *driver) run(t *testing.T, task *drivers.TaskConfig) (*drivers.TaskHandle, *drivers.DriverNetwork) {
	t.Helper()
	handle, network, err := d.StartTask(task)
	must.NoError(t, err)
	t.Cleanup(func() { _ = d.plugin.DestroyTask(task.ID, true) })
	return handle, network
}

func (d *driver) ended(t *testing.T, task *drivers.TaskConfig) *drivers.ExitResult {
	t.Helper()
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	result := <-results
	must.NoError(t, d.DestroyTask(task.ID, false))
	noContainer(t, task)
	return result
}

func TestServiceLifeOfATask(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	first, second := testGPUs(t)
	task, out := w.script(`env; echo out; echo err >&2; echo made > /local/file; exit 3`, ``, slice(first, 0, 1), slice(second, 5))
	d.run(t, task)
	must.SliceLen(t, 2, w.claims())
	must.Eq(t, 3, d.ended(t, task).ExitCode)
	must.SliceEmpty(t, w.claims())
	eventually(t, func() bool { return strings.Contains(out.Got(), "out\n") })
	must.StrContains(t, out.Got(), "GPU_MEM_LIMIT_MIB=2048,1024\n")
	must.StrContains(t, out.Got(), "GPU_MEM_UNITS=2,1\n")
	made, err := os.ReadFile(filepath.Join(task.TaskDir().LocalDir, "file"))
	must.NoError(t, err)
	must.Eq(t, "made\n", string(made))
}

// greedyImage asks for all GPUs, and for rights over their MIG instances.
func greedyImage(t *testing.T) string {
	t.Helper()
	name := "driver-test:" + uuid.Short()
	id := dockerCommand(t, "create", os.Getenv("GPU_MEM_TEST_IMAGE"))
	dockerCommand(t, "commit", "--change", "ENV NVIDIA_VISIBLE_DEVICES=all", "--change", "ENV NVIDIA_MIG_CONFIG_DEVICES=all", id, name)
	dockerCommand(t, "rm", id)
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", name).Run() })
	return name
}

func TestServiceUnknownGPULeavesNothing(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script(`true`, ``, slice("GPU-00000000-0000-0000-0000-000000000000", 1))
	_, _, err := d.StartTask(task)
	must.ErrorContains(t, err, "starting container")
	must.SliceEmpty(t, w.claims())
	noContainer(t, task)
}

// noContainer asks Docker itself.
func noContainer(t *testing.T, task *drivers.TaskConfig) {
	t.Helper()
	engine, err := docker.New(docker.Config{})
	must.NoError(t, err)
	defer engine.Close()
	found, err := engine.List(t.Context(), map[string]string{label.Attempt: task.ID})
	must.NoError(t, err)
	must.SliceEmpty(t, found)
}

func TestServiceLogsOverARestartOfThePlugin(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done`, ``)
	handle, _ := d.run(t, task)
	eventually(t, func() bool { return strings.Contains(out.Got(), "line 10\n") })
	d.kill()
	d = w.boot()
	must.NoError(t, d.RecoverTask(handle))
	must.True(t, d.ended(t, task).Successful())

	var want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	eventually(t, func() bool { return out.Got() == want.String() })
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestServicePortsAndVolumes(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	port := freePort(t)
	task, _ := w.script(`cat /data/greeting | nc -l -p 80`, "ports = [\"http\"]\nvolumes = [\"local/data:/data:ro\"]")
	task.Resources.Ports = &structs.AllocatedPorts{{Label: "http", Value: port, To: 80, HostIP: "127.0.0.1"}}
	data := filepath.Join(task.TaskDir().LocalDir, "data")
	must.NoError(t, os.Mkdir(data, 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(data, "greeting"), []byte("hello\n"), 0o644))
	d.run(t, task)

	eventually(t, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		text, _ := io.ReadAll(conn)
		return string(text) == "hello\n"
	})
}

func TestServiceStatsSignalAndExec(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`trap 'echo hup' HUP; echo ready; while true; do sleep 0.1; done`, ``)
	d.run(t, task)
	eventually(t, func() bool { return strings.Contains(out.Got(), "ready") })
	must.NoError(t, d.SignalTask(task.ID, "SIGHUP"))
	eventually(t, func() bool { return strings.Contains(out.Got(), "hup") })

	stats, err := d.TaskStats(t.Context(), task.ID, 100*time.Millisecond)
	must.NoError(t, err)
	must.Positive(t, (<-stats).ResourceUsage.MemoryStats.Usage)

	result, err := d.ExecTask(task.ID, []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 4"}, 5*time.Second)
	must.NoError(t, err)
	must.Eq(t, 4, result.ExitResult.ExitCode)
	must.Eq(t, "out\n", string(result.Stdout))
	must.True(t, bytes.Equal([]byte("err\n"), result.Stderr))
}

// Nomad's own suite for `nomad alloc exec`.
func TestServiceExecStreamingConformance(t *testing.T) {
	harness, task := conformant(t)
	_, _, err := harness.StartTask(task)
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, harness.DestroyTask(task.ID, true)) })
	testutils.ExecTaskStreamingConformanceTests(t, harness, task.ID)
}
