// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/logpipe/logpipetest"
)

// These tests hold, on a real engine, what people know of Nomad's own Docker driver: how
// tasks start, end and are held to their resources.

// stopped stops a task and returns how it ended.
func (d *driver) stopped(t *testing.T, task *drivers.TaskConfig, timeout time.Duration, signal string) *drivers.ExitResult {
	t.Helper()
	must.NoError(t, d.StopTask(task.ID, timeout, signal))
	return d.ended(t, task)
}

func TestServiceTaskRunsUntilItEnds(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script(`echo at work > /alloc/data/file; until [ -e /local/end ]; do sleep 0.05; done`, ``)
	d.run(t, task)
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	shared := filepath.Join(task.TaskDir().SharedAllocDir, "data", "file")
	eventually(t, func() bool { text, _ := os.ReadFile(shared); return string(text) == "at work\n" })
	select {
	case result := <-results:
		t.Fatalf("the task runs, and was said to have ended: %v", result)
	default:
	}
	status, err := d.InspectTask(task.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateRunning, status.State)

	must.NoError(t, os.WriteFile(filepath.Join(task.TaskDir().LocalDir, "end"), nil, 0o644))
	result := <-results
	must.True(t, result.Successful())
	must.Eq(t, 0, result.Signal)
	status, err = d.InspectTask(task.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateExited, status.State)
	must.False(t, status.CompletedAt.Before(status.StartedAt))
	must.NoError(t, d.DestroyTask(task.ID, false))
}

// A task that a signal ended has failed, and the signal's number is in the exit code alone:
// 128 and more may as well be what a program returns.
func TestServiceStopBySignal(t *testing.T) {
	t.Parallel()
	for signal, code := range map[string]int{"": 143, "SIGINT": 130, "SIGKILL": 137} {
		w := realWorld(t)
		d := w.boot()
		task, out := w.script(`trap "exit 130" INT; trap "exit 143" TERM; echo ready; while :; do sleep 0.05; done`, ``)
		d.run(t, task)
		eventually(t, func() bool { return strings.Contains(out.Got(), "ready") })
		result := d.stopped(t, task, time.Minute, signal)
		must.Eq(t, code, result.ExitCode)
		must.Eq(t, 0, result.Signal)
		must.False(t, result.OOMKilled, must.Sprint("137 alone does not prove a lack of memory"))
		must.False(t, result.Successful())
		must.ErrorContains(t, result.Err, fmt.Sprintf("exited with non-zero exit code: %d", code))
	}
}

func TestServiceDeafTaskIsKilledAfterItsTimeout(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`trap "" USR1 TERM; echo ready; while :; do sleep 0.05; done`, ``)
	d.run(t, task)
	eventually(t, func() bool { return strings.Contains(out.Got(), "ready") })
	began := time.Now()
	must.Eq(t, 137, d.stopped(t, task, 2*time.Second, "SIGUSR1").ExitCode)
	must.GreaterEq(t, 2*time.Second, time.Since(began))
}

func TestServiceOutOfMemory(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script(`tail /dev/zero`, ``)
	task.Resources.NomadResources.Memory = structs.AllocatedMemoryResources{MemoryMB: 16}
	d.run(t, task)
	result := d.ended(t, task)
	must.True(t, result.OOMKilled)
	must.Eq(t, 137, result.ExitCode)
	must.ErrorContains(t, result.Err, "OOM Killed")
}

// TestServiceLimitsAreInForce asks the kernel, from inside: limits that the engine took
// and did not apply would be none.
func TestServiceLimitsAreInForce(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`
		first() { for f; do if [ -e "/sys/fs/cgroup/$f" ]; then cat "/sys/fs/cgroup/$f"; return; fi; done; }
		echo memory $(first memory/memory.limit_in_bytes memory.max)
		echo reserved $(first memory/memory.soft_limit_in_bytes memory.low)
		echo cpus $(first cpuset/cpuset.cpus cpuset.cpus)
		echo pids $(first pids/pids.max pids.max)
		echo shares $(first cpu/cpu.shares cpu.weight)
		echo quota $(first cpu/cpu.cfs_quota_us cpu.max)
		for i in 1 2 3 4 5 6 7 8; do sleep 5 & done
		echo ready`, "pids_limit = 6\ncpu_hard_limit = true")
	task.Resources.NomadResources.Memory = structs.AllocatedMemoryResources{MemoryMB: 32, MemoryMaxMB: 64}
	task.Resources.LinuxResources.CPUShares = 300
	task.Resources.LinuxResources.CpusetCpus = "0"
	task.StderrPath = logpipetest.Mkfifo(t)
	stderr := logpipetest.Collect(t, task.StderrPath)
	d.run(t, task)
	must.NotEq(t, 0, d.ended(t, task).ExitCode, must.Sprint("a shell that cannot fork ends"))
	eventually(t, func() bool { return strings.Contains(stderr.Got(), "fork") })
	got := out.Got()
	must.StrContains(t, got, fmt.Sprintf("memory %d\n", 64<<20))
	must.StrContains(t, got, fmt.Sprintf("reserved %d\n", 32<<20))
	must.StrContains(t, got, "cpus 0\n")
	must.StrContains(t, got, "pids 6\n")
	must.True(t, strings.Contains(got, "shares 300\n") || strings.Contains(got, "shares 12\n"), must.Sprint(got)) // cgroup v2 has weights
	must.StrContains(t, got, fmt.Sprintf("quota %d", int(0.1*100_000*float64(runtime.NumCPU()))))
	must.StrNotContains(t, got, "ready")
}

func TestServiceSeveralTasksAtOnce(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	var starts sync.WaitGroup
	var tasks []*drivers.TaskConfig
	for i := range 3 {
		task, _ := w.script(fmt.Sprintf("exit %d", i), ``)
		tasks = append(tasks, task)
		starts.Go(func() { d.run(t, task) })
	}
	starts.Wait()
	for i, task := range tasks {
		must.Eq(t, i, d.ended(t, task).ExitCode)
	}
}

// An image that cannot be pulled may be there the next time: Nomad's restart policy
// decides, and nothing is left meanwhile.
func TestServicePullFromNowhere(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script("true", `image = "127.0.0.1:1/not/there:1"`)
	_, _, err := d.StartTask(task)
	must.ErrorContains(t, err, "127.0.0.1:1/not/there:1")
	must.True(t, structs.IsRecoverable(err))
	noContainer(t, task)
	must.True(t, d.reported("Downloading image"))
}

// A name proves nothing: a container that is not of this task keeps it, running or not,
// and the start is tried again by the job's restart policy.
func TestServiceNameTakenByAnother(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "run"} {
		w := realWorld(t)
		d := w.boot()
		task, _ := w.script("exit 7", ``)
		args := []string{verb, "--name", label.ContainerName(task.Name, task.AllocID), os.Getenv("GPU_MEM_TEST_IMAGE"), "sleep", "1000"}
		if verb == "run" {
			args = append([]string{verb, "--detach"}, args[1:]...)
		}
		other := dockerCommand(t, args...)
		_, _, err := d.StartTask(task)
		must.ErrorContains(t, err, "the name was taken")
		must.True(t, structs.IsRecoverable(err))
		must.NotEq(t, "", dockerCommand(t, "ps", "--all", "--quiet", "--filter", "id="+other))

		dockerCommand(t, "rm", "--force", other)
		d.run(t, task)
		must.Eq(t, 7, d.ended(t, task).ExitCode)
	}
}

func TestServiceFingerprint(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	prints, err := w.boot().Fingerprint(t.Context())
	must.NoError(t, err)
	print := <-prints
	must.Eq(t, drivers.HealthStateHealthy, print.Health)
	for _, name := range []string{"", ".version", ".bridge_ip", ".runtimes", ".os_type"} {
		must.MapContainsKey(t, print.Attributes, "driver."+Name+name)
	}
}
