// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// ownEngine starts a Docker engine for one test, which may restart it, also as another engine by GPU_MEM_ENGINE. It keeps containers alive over restarts.
func ownEngine(t *testing.T, settings ...string) (c *Client, control func(verb string, env ...string)) {
	t.Helper()
	run, err := os.MkdirTemp("/var/tmp", "gpu-mem-restart.") // short, for a socket's path
	must.NoError(t, err)
	env := slices.Concat(os.Environ(), settings, []string{"GPU_MEM_RUN=" + run, "GPU_MEM_SLOT=" + strconv.Itoa(freeSlot(t, run))})
	script := func(name string, args, further []string) {
		cmd := exec.Command("../../scripts/"+name, args...)
		cmd.Env = append(slices.Clone(env), further...)
		out, err := cmd.CombinedOutput()
		must.NoError(t, err, must.Sprintf("%s %v: %s", name, args, out))
	}
	control = func(verb string, env ...string) { script("dockerd.sh", []string{verb}, env) }
	t.Cleanup(func() {
		control("stop")
		must.NoError(t, os.RemoveAll(run))
	})
	control("start")
	script("image.sh", nil, nil)
	return newClient(t, Config{Endpoint: "unix://" + run + "/docker.sock", InfraImage: os.Getenv("GPU_MEM_TEST_PAUSE_IMAGE")}), control
}

// freeSlot claims a number that no other engine on this machine uses, for the engine in the run directory, by the bridge that the engine will have.
func freeSlot(t *testing.T, run string) int {
	t.Helper()
	for slot := 100; slot < 200; slot++ {
		bridge := fmt.Sprintf("gpumem%d", slot)
		if exec.Command("ip", "link", "add", bridge, "type", "bridge").Run() == nil {
			must.NoError(t, exec.Command("ip", "link", "set", bridge, "alias", run).Run())
			return slot
		}
	}
	t.Fatal("no free slot for an engine: bridges gpumem100 to gpumem199 are all there, or this is not root")
	return 0
}

// TestDaemonRestarts restarts the daemon twice under a container that keeps running: Wait must not take that for an exit, and Logs
// must deliver each line once. Nor may the network of a group change.
func TestDaemonRestarts(t *testing.T) {
	t.Parallel()
	c, control := ownEngine(t)
	spec := shell("i=0; while [ ! -e /tmp/end ]; do echo $i; i=$((i+1)); sleep 0.01; done; exit 7")
	id := start(t, c, spec)
	before, err := c.Inspect(t.Context(), id)
	must.NoError(t, err)
	group := SandboxSpec{Name: uniqueName(), Labels: map[string]string{"docker-test": "group"}}
	sandbox, _, err := c.CreateSandbox(t.Context(), group)
	must.NoError(t, err)
	whose, err := c.ID(t.Context())
	must.NoError(t, err)
	must.NotEq(t, "", whose)

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	type outcome struct {
		exit Exit
		err  error
	}
	waited := make(chan outcome, 1)
	go func() {
		exit, err := c.Wait(ctx, id)
		waited <- outcome{exit, err}
	}()
	var written strings.Builder
	logged := make(chan error, 1)
	go func() {
		keep := func(_ LogMark, data []byte) error { written.Write(data); return nil }
		logged <- c.Logs(ctx, id, LogPosition{}, false, keep, keep)
	}()

	for range 2 {
		control("restart")
		after, err := c.Inspect(ctx, id)
		must.NoError(t, err)
		must.True(t, after.Running)
		must.Eq(t, before.Pid, after.Pid)
		again, created, err := c.CreateSandbox(ctx, group)
		must.NoError(t, err)
		must.False(t, created)
		must.Eq(t, sandbox, again, must.Sprint("its namespace goes by the same path"))
		same, err := c.ID(ctx)
		must.NoError(t, err)
		must.Eq(t, whose, same)
		must.Eq(t, 0, len(waited), must.Sprint("a restart of the daemon was taken for an exit"))
		must.Eq(t, 0, len(logged), must.Sprint("a restart of the daemon was taken for the end of the logs"))
	}

	must.NoError(t, c.RemoveSandbox(ctx, sandbox.ID))
	end, err := c.Exec(ctx, id, []string{"touch", "/tmp/end"}, 4096)
	must.NoError(t, err)
	must.Eq(t, 0, end.Code)
	got := <-waited
	must.NoError(t, got.err)
	must.Eq(t, 7, got.exit.Code)
	must.NoError(t, <-logged)
	lines := strings.Split(strings.TrimSuffix(written.String(), "\n"), "\n")
	must.Greater(t, 10, len(lines))
	for i, line := range lines {
		must.Eq(t, strconv.Itoa(i), line)
	}
}
