// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"context"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	c := engine(t)
	info, err := c.Info(t.Context())
	must.NoError(t, err)
	id, err := c.ID(t.Context())
	must.NoError(t, err)
	must.Eq(t, id, info.ID)
	must.NotEq(t, "", info.ID)
	must.NotEq(t, "", info.Version)
	must.Eq(t, "linux", info.OSType)
	must.SliceContains(t, info.Runtimes, "nvidia")
	must.SliceContains(t, info.Runtimes, "runc")
	must.NotEq(t, "", info.BridgeIP)
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell("read line; exit 42")
	spec.Config.OpenStdin = true // so that it waits
	id := start(t, c, spec)

	running, err := c.Inspect(t.Context(), id)
	must.NoError(t, err)
	must.True(t, running.Running)
	must.Eq(t, "running", running.Status)
	must.Eq(t, spec.Name, running.Name)
	must.Positive(t, running.Pid)
	must.False(t, running.StartedAt.IsZero())
	must.True(t, running.FinishedAt.IsZero())
	must.NotEq(t, "", running.SandboxKey)

	must.NoError(t, c.Start(t.Context(), id)) // again: runs already
	must.NoError(t, c.Stop(t.Context(), id, "", 0))

	exit, err := c.Wait(t.Context(), id)
	must.NoError(t, err)
	must.Eq(t, 137, exit.Code)
	must.False(t, exit.OOMKilled)
	must.False(t, exit.FinishedAt.IsZero())

	must.NoError(t, c.Remove(t.Context(), id))
	must.NoError(t, c.Remove(t.Context(), id))
	_, err = c.Inspect(t.Context(), id)
	must.ErrorIs(t, err, ErrNotFound)
	_, err = c.Wait(t.Context(), id)
	must.ErrorIs(t, err, ErrNotFound)
	must.NoError(t, c.Stop(t.Context(), id, "SIGTERM", time.Second))
	must.ErrorIs(t, c.Signal(t.Context(), id, "SIGHUP"), ErrNotFound)
	must.ErrorIs(t, c.Start(t.Context(), id), ErrNotFound)
}

func TestWaitCode(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell("exit 42"))
	for range 2 { // also when it has ended long since
		exit, err := c.Wait(t.Context(), id)
		must.NoError(t, err)
		must.Eq(t, 42, exit.Code)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell(forever))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, os.ErrDeadlineExceeded)
	defer cancel()
	_, err := c.Wait(ctx, id)
	must.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell("tail /dev/zero")
	spec.Host.Memory, spec.Host.MemorySwap = 16<<20, 16<<20
	exit, err := c.Wait(t.Context(), start(t, c, spec))
	must.NoError(t, err)
	must.Eq(t, 137, exit.Code)
	must.True(t, exit.OOMKilled)
}

func TestSetCPUs(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell(`until [ -e /tmp/end ]; do sleep 0.05; done; cat /sys/fs/cgroup/cpuset/cpuset.cpus || cat /sys/fs/cgroup/cpuset.cpus`)
	spec.Host.CpusetCpus = "0"
	id := start(t, c, spec)
	must.NoError(t, c.SetCPUs(t.Context(), id, "0-1"))
	_, err := c.Exec(t.Context(), id, []string{"touch", "/tmp/end"}, 4096)
	must.NoError(t, err)
	stdout, _ := output(t, c, id, false)
	must.Eq(t, "0-1\n", stdout)
	must.ErrorIs(t, c.SetCPUs(t.Context(), uniqueName(), "0"), ErrNotFound)
}

func TestCreateAdoptsItsOwn(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell(forever)
	id := start(t, c, spec)
	again, err := c.Create(t.Context(), spec)
	must.NoError(t, err)
	must.Eq(t, id, again)
	must.NoError(t, c.Start(t.Context(), again))
}

func TestCreateReplacesItsOwnThatEnded(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell("true")
	old := start(t, c, spec)
	_, err := c.Wait(t.Context(), old)
	must.NoError(t, err)
	id := create(t, c, spec)
	must.NotEq(t, old, id)
	_, err = c.Inspect(t.Context(), old)
	must.ErrorIs(t, err, ErrNotFound)
}

// A name proves nothing: which of two starts is the later one is for others to know.
func TestCreateRemovesNoOthers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Spec){
		"of another attempt": func(s *Spec) {
			s.Config.Labels = maps.Clone(s.Config.Labels)
			s.Config.Labels["attempt"] = "2"
		},
		"of unknown origin": func(s *Spec) { s.Config.Labels = nil },
	} {
		for _, script := range []string{forever, "true"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := engine(t)
				spec := shell(script)
				old := start(t, c, spec)
				config := *spec.Config
				spec.Config = &config
				change(&spec)
				_, err := c.Create(t.Context(), spec)
				must.ErrorIs(t, err, ErrNameTaken)
				must.True(t, Recoverable(err))
				_, err = c.Inspect(t.Context(), old)
				must.NoError(t, err)
			})
		}
	}
}

func TestCreateFails(t *testing.T) {
	t.Parallel()
	c := engine(t)

	noImage := shell("true")
	noImage.Config.Image = "is/not:there"
	_, err := c.Create(t.Context(), noImage)
	must.ErrorIs(t, err, ErrImage)

	noRuntime := shell("true")
	noRuntime.Host.Runtime = "kata-of-tomorrow"
	_, err = c.Create(t.Context(), noRuntime)
	must.ErrorIs(t, err, ErrRuntimeMissing)
	must.ErrorContains(t, err, "kata-of-tomorrow")
	must.ErrorContains(t, err, "nvidia-ctk runtime configure")
	must.False(t, Recoverable(err))
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	c := engine(t)

	noUser := shell("true")
	noUser.Config.User = "nobody-of-that-name"
	must.ErrorContains(t, c.Start(t.Context(), create(t, c, noUser)), "nobody-of-that-name")

	noCommand := shell("true")
	noCommand.Config.Cmd = []string{"/no/such/program"}
	id := create(t, c, noCommand)
	must.ErrorContains(t, c.Start(t.Context(), id), "/no/such/program")

	noDriver := shell("true")
	noDriver.Host.DeviceRequests = []container.DeviceRequest{{Count: -1, Capabilities: [][]string{{"no-such-driver"}}}}
	must.ErrorIs(t, c.Start(t.Context(), create(t, c, noDriver)), ErrRuntimeMissing)

	noGPU := shell("true")
	noGPU.Host.Runtime = "nvidia"
	noGPU.Config.Env = []string{"NVIDIA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000"}
	err := c.Start(t.Context(), create(t, c, noGPU))
	must.ErrorIs(t, err, ErrDeviceMissing)
	must.ErrorContains(t, err, "GPU-00000000-0000-0000-0000-000000000000")
}

func TestListByLabel(t *testing.T) {
	t.Parallel()
	c := engine(t)
	running, ended := shell(forever), shell("true")
	common := uniqueName()
	running.Config.Labels["common"], ended.Config.Labels["common"] = common, common
	start(t, c, running)
	id := start(t, c, ended)
	_, err := c.Wait(t.Context(), id)
	must.NoError(t, err)

	list, err := c.List(t.Context(), map[string]string{"common": common})
	must.NoError(t, err)
	runs := map[string]bool{}
	for _, found := range list {
		runs[found.Name] = found.Running
		must.Eq(t, common, found.Labels["common"])
		must.False(t, found.CreatedAt.IsZero())
	}
	must.Eq(t, map[string]bool{running.Name: true, ended.Name: false}, runs)

	none, err := c.List(t.Context(), map[string]string{"common": common, "docker-test": "other"})
	must.NoError(t, err)
	must.SliceEmpty(t, none)
	any, err := c.List(t.Context(), map[string]string{"common": common, "docker-test": ""})
	must.NoError(t, err)
	must.Len(t, 2, any)
}

func TestAddress(t *testing.T) {
	t.Parallel()
	c := engine(t)
	spec := shell(forever)
	spec.Host.NetworkMode = "bridge"
	got, err := c.Inspect(t.Context(), start(t, c, spec))
	must.NoError(t, err)
	must.Eq(t, "bridge", got.NetworkName)
	must.NotEq(t, "", got.IP)
	must.Eq(t, 1, got.Networks)
}

func TestStats(t *testing.T) {
	t.Parallel()
	c := engine(t)
	id := start(t, c, shell("while :; do :; done"))
	sample, err := c.Stats(t.Context(), id)
	must.NoError(t, err)
	must.Positive(t, sample.CPUPercent)
	must.Positive(t, sample.MemoryUsage)
	must.False(t, sample.Time.IsZero())

	must.NoError(t, c.Stop(t.Context(), id, "", 0))
	_, err = c.Stats(t.Context(), id)
	must.ErrorIs(t, err, ErrNotRunning)
	must.NoError(t, c.Remove(t.Context(), id))
	_, err = c.Stats(t.Context(), id)
	must.ErrorIs(t, err, ErrNotFound)
}

func TestRemoveImageInUse(t *testing.T) {
	t.Parallel()
	c := engine(t)
	got, err := c.Inspect(t.Context(), start(t, c, shell(forever)))
	must.NoError(t, err)
	must.NoError(t, c.RemoveImage(t.Context(), got.Image)) // in use: stays
	img, err := c.EnsureImage(t.Context(), PullRequest{Ref: os.Getenv("GPU_MEM_TEST_IMAGE")})
	must.NoError(t, err)
	must.Eq(t, got.Image, img.ID)
	must.NoError(t, c.RemoveImage(t.Context(), "sha256:0000000000000000000000000000000000000000000000000000000000000000"))
}
