// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package staging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"
	"golang.org/x/sys/unix"
)

// apart is a process with a mount namespace of its own, as an engine can be.
func apart(t *testing.T, propagation string) (pid int) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", propagation, "sleep", "1000")
	must.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	must.Wait(t, wait.InitialSuccess(wait.Timeout(10*time.Second), wait.Gap(10*time.Millisecond), wait.BoolFunc(func() bool {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		return strings.TrimSpace(string(name)) == "sleep"
	})))
	return cmd.Process.Pid
}

// An engine sees the mounts if it shares them, or follows them, and not if it has only a copy of what was there when it
// began: it would mount empty directories into containers.
func TestCheckSeesWhatTheEngineSees(t *testing.T) {
	t.Parallel()
	n := &node{state: t.TempDir(), alloc: t.TempDir()}
	n.Area = New(n.state, Kernel{})
	must.NoError(t, os.MkdirAll(filepath.Join(n.alloc, "local", "d"), 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(n.alloc, "local", "d", "name"), nil, 0o600))
	must.NoError(t, Kernel{}.Tmpfs(n.state))
	t.Cleanup(func() { must.NoError(t, unix.Unmount(n.state, unix.MNT_DETACH)) })
	must.NoError(t, unix.Mount("", n.state, "", unix.MS_SHARED, ""))

	engines := map[int]bool{ // whether it sees what is mounted later
		os.Getpid():           true,
		apart(t, "unchanged"): true,
		apart(t, "slave"):     true,
		apart(t, "private"):   false,
	}
	must.NoError(t, n.Check(0))
	for propagation, sees := range map[string]bool{"unchanged": true, "slave": true, "private": false} {
		engines[apart(t, propagation)] = sees // this one has the area itself in any case
	}
	staged := n.stage(t, "a/task/1", 1, "local/d")
	for pid, sees := range engines {
		_, err := os.Stat(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), staged, "name"))
		must.Eq(t, sees, err == nil)
		must.Eq(t, sees, n.Check(pid) == nil)
	}
	must.NoError(t, n.Remove("a/task/1"))

	must.NoError(t, unix.Unmount(n.dir, unix.MNT_DETACH))
	must.NoError(t, unix.Mount("", n.state, "", unix.MS_PRIVATE, ""))
	must.Error(t, n.Check(apart(t, "unchanged")))
}
