// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goversion "github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestPluginInfo(t *testing.T) {
	t.Parallel()
	info, err := newWorld(t).boot().PluginInfo()
	must.NoError(t, err)
	must.Eq(t, "gpu-docker", info.Name)
	must.Eq(t, base.PluginTypeDriver, info.Type)
}

// Under the name of Nomad's own driver, Nomad takes this one and finds the attributes
// that jobs ask for.
func TestServesAsDocker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name = BuiltinName
	d := w.boot()
	info, err := d.PluginInfo()
	must.NoError(t, err)
	must.Eq(t, "docker", info.Name)
	builtin := goversion.Must(goversion.NewVersion("0.1.0"))
	must.False(t, goversion.Must(goversion.NewVersion(info.PluginVersion)).LessThan(builtin))

	found, err := d.Fingerprint(t.Context())
	must.NoError(t, err)
	first := <-found
	must.MapContainsKey(t, first.Attributes, "driver.docker.version")
	for name := range first.Attributes {
		must.StrHasPrefix(t, "driver.docker", name)
	}
}

// Nomad would retry for minutes if a stop of an unknown task were an error.
func TestUnknownTask(t *testing.T) {
	t.Parallel()
	d := newWorld(t).boot()
	must.NoError(t, d.StopTask("x", time.Second, ""))
	must.Error(t, d.DestroyTask("x", true))
	must.Error(t, d.SignalTask("x", "SIGHUP"))
	_, err := d.InspectTask("x")
	must.Error(t, err)
	_, err = d.ExecTask("x", []string{"true"}, time.Second)
	must.Error(t, err)
	results, err := d.WaitTask(t.Context(), "x")
	must.NoError(t, err)
	must.Error(t, (<-results).Err)
}

// Each waiter gets one result, also one that gives up.
func TestWaitAlwaysDelivers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(`command = "exit"`)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	for range 3 {
		results, err := d.plugin.WaitTask(t.Context(), task.ID)
		must.NoError(t, err)
		must.True(t, (<-results).Successful())
		_, open := <-results
		must.False(t, open)
	}

	endless := w.task(``)
	_, _, err = d.StartTask(endless)
	must.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	results, err := d.plugin.WaitTask(ctx, endless.ID)
	must.NoError(t, err)
	cancel()
	must.ErrorIs(t, (<-results).Err, context.Canceled)
}

func TestContainerRemovedByOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``, slice(gpuA, 1))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	results, err := d.WaitTask(t.Context(), task.ID)
	must.NoError(t, err)
	must.NoError(t, w.engine.Remove(t.Context(), "c1"))
	must.ErrorContains(t, (<-results).Err, "removed from Docker by someone else")
	must.NoError(t, d.DestroyTask(task.ID, false))
	w.nothingLeft()
}

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	stats, err := d.TaskStats(ctx, task.ID, 10*time.Millisecond)
	must.NoError(t, err)
	for range 2 {
		sample := <-stats
		must.Eq(t, 50, sample.ResourceUsage.CpuStats.Percent)
		must.Eq(t, 1<<20, sample.ResourceUsage.MemoryStats.Usage)
	}
	cancel()
	for range stats { // until it is closed
	}
}

func TestSignalAndExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	must.NoError(t, d.SignalTask(task.ID, "SIGHUP"))
	must.ErrorContains(t, d.SignalTask(task.ID, ""), "no signal to send")
	must.Eq(t, []string{"got SIGHUP"}, w.engine.running()[0].lines)

	result, err := d.ExecTask(task.ID, []string{"date"}, time.Second)
	must.NoError(t, err)
	must.Eq(t, 3, result.ExitResult.ExitCode)
	must.Eq(t, "date", string(result.Stdout))

	var out bytes.Buffer
	exit, err := d.plugin.ExecTaskStreaming(t.Context(), task.ID, &drivers.ExecOptions{
		Command: []string{"date"}, Stdin: io.NopCloser(&bytes.Buffer{}), Stdout: nopCloser{&out}, Stderr: nopCloser{&out},
	})
	must.NoError(t, err)
	must.Eq(t, 7, exit.ExitCode)
	must.Eq(t, "date\n", out.String())
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestFingerprint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = "allow_privileged = true\nvolumes { enabled = true }\npids_limit = 100"
	w.engine.setAway(true)
	d := w.boot()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	prints, err := d.Fingerprint(ctx)
	must.NoError(t, err)

	first := <-prints
	must.Eq(t, drivers.HealthStateUndetected, first.Health)

	w.engine.setAway(false)
	second := <-prints
	must.Eq(t, drivers.HealthStateHealthy, second.Health)
	must.Eq(t, drivers.DriverHealthy, second.HealthDescription)
	for name, want := range map[string]string{
		"": "true", ".version": "28.0.0", ".runtimes": "nvidia,runc", ".nvidia_runtime": "true", ".os_type": "linux",
		".privileged.enabled": "true", ".volumes.enabled": "true", ".pids.limit": "100", ".bridge_ip": "172.17.0.1",
	} {
		got, ok := second.Attributes["driver.gpu-docker"+name]
		must.True(t, ok, must.Sprint(name))
		must.Eq(t, want, got.GoString(), must.Sprint(name))
	}

	w.engine.change(func() { w.engine.runtimes = []string{"runc"} })
	third := <-prints
	must.Eq(t, drivers.HealthStateHealthy, third.Health)
	must.StrContains(t, third.HealthDescription, `docker has no runtime "nvidia"`)

	w.engine.change(func() { w.engine.runtimes = []string{"runc", "nvidia"} })
	must.Eq(t, drivers.DriverHealthy, (<-prints).HealthDescription)
	w.store.Fail(fmt.Errorf("dial 127.0.0.1:1: %w", allocator.ErrUnavailable))
	fourth := <-prints
	must.Eq(t, drivers.HealthStateHealthy, fourth.Health)
	must.StrContains(t, fourth.HealthDescription, "dial 127.0.0.1:1")
	w.store.Fail(fmt.Errorf("dial 127.0.0.1:2: %w", allocator.ErrUnavailable))

	attempts := filepath.Join(w.stateDir, "attempts")
	eventually(t, func() bool { // the plugin may create it again in between
		return os.RemoveAll(attempts) == nil && os.WriteFile(attempts, nil, 0o600) == nil // not a directory
	})
	unwritable := <-prints
	must.Eq(t, drivers.HealthStateUnhealthy, unwritable.Health)
	must.StrContains(t, unwritable.HealthDescription, "cannot be noted in state_dir")

	w.engine.setAway(true)
	fifth := <-prints
	for strings.Contains(fifth.HealthDescription, "cannot be noted in state_dir") { // in other words: the directory came and went
		fifth = <-prints
	}
	must.Eq(t, drivers.HealthStateUnhealthy, fifth.Health, must.Sprint("an outage of the table is reported once"))
	must.StrContains(t, fifth.HealthDescription, "docker does not answer")
}
