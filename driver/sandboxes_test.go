// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/driver/netns"
)

// fakeProc has a pause process (1) with the given interface in its namespace and a child
// of its own (5), one more process in that namespace if shared, and one elsewhere.
func fakeProc(t *testing.T, device string, shared bool) netns.Procfs {
	t.Helper()
	root := t.TempDir()
	neighbour := "net:[200]"
	if shared {
		neighbour = "net:[100]"
	}
	for pid, namespaces := range map[int][2]string{
		1: {"net:[100]", "pid:[1]"}, 2: {neighbour, "pid:[2]"}, 3: {"net:[300]", "pid:[3]"}, 5: {"net:[100]", "pid:[1]"},
	} {
		dir := filepath.Join(root, strconv.Itoa(pid))
		must.NoError(t, os.MkdirAll(filepath.Join(dir, "ns"), 0o755))
		must.NoError(t, os.MkdirAll(filepath.Join(dir, "net"), 0o755))
		must.NoError(t, os.Symlink(namespaces[0], filepath.Join(dir, "ns/net")))
		must.NoError(t, os.Symlink(namespaces[1], filepath.Join(dir, "ns/pid")))
		devices := "Inter-|   Receive\n face |bytes\n    lo:       0\n  " + device + ": 0\n"
		must.NoError(t, os.WriteFile(filepath.Join(dir, "net/dev"), []byte(devices), 0o600))
	}
	must.NoError(t, os.MkdirAll(filepath.Join(root, "4"), 0o755)) // has just ended
	must.NoError(t, os.WriteFile(filepath.Join(root, "uptime"), nil, 0o600))
	return netns.Procfs(root)
}

// A pause container goes when its group is certainly gone, and not while tasks of the
// group may yet be started.
func TestForgottenSandboxes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		idle    time.Duration // between two looks
		running bool
		busy    bool // an attempt of the group is not at its end
		asked   bool // Nomad asks for the network between two looks
		foreign bool // only inherited the label
		gone    bool
	}{
		{"deserted for long", 2 * sandboxIdle, true, false, false, false, true},
		{"deserted for a while", sandboxIdle / 2, true, false, false, false, false},
		{"ended", 0, false, false, false, false, true},
		{"ended, of a group that is being ended", 0, false, true, false, false, false},
		{"with tasks", 2 * sandboxIdle, true, true, false, false, false},
		{"asked for", 2 * sandboxIdle, true, false, true, false, false},
		{"another's", 2 * sandboxIdle, true, false, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config = "gc {\n dangling_containers {\n enabled = false\n }\n}" // no round but those below
			p := w.newPlugin()
			t.Cleanup(p.Shutdown)
			must.NoError(t, p.SetConfig(w.agentConfig()))
			s, err := p.serving()
			must.NoError(t, err)
			s.sandboxes.proc = fakeProc(t, "lo", false)
			pause := docker.Container{
				ID: "pause", Name: label.SandboxName(allocID), Running: c.running, Pid: 1, Labels: map[string]string{label.Sandbox: allocID},
			}
			if c.foreign {
				pause.Name = "other"
			}
			w.engine.change(func() { w.engine.containers["pause"] = &fakeContainer{Container: pause} })
			if c.busy {
				a := attempt.Record{ID: "x", Owner: allocator.Owner{Task: "app", Alloc: allocID}}
				must.NoError(t, s.reaper.Begin(t.Context(), a))
			}
			now := time.Now()
			s.removeForgottenSandboxes(t.Context(), now)
			if c.asked {
				_, _, err := p.CreateNetwork(allocID, nil)
				must.NoError(t, err)
			}
			s.removeForgottenSandboxes(t.Context(), now.Add(c.idle))
			must.Eq(t, c.gone, w.engine.count() == 0)
		})
	}
}
