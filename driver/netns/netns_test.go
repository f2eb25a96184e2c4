// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package netns

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/shoenig/test/must"
)

// fakeProc has a pause process (1) with the given interface in its namespace and a child
// of its own (5), one more process in that namespace if shared, and one elsewhere.
func fakeProc(t *testing.T, device string, shared bool) Procfs {
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
	return Procfs(root)
}

func TestDesertedNamespace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, device   string
		shared, wanted bool
	}{
		{"empty", "tunl0", false, true},
		{"furnished by Nomad", "eth0", false, false},
		{"furnished, named by the operator", "net0", false, false},
		{"in use", "tunl0", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := fakeProc(t, c.device, c.shared).Deserted(1)
			must.NoError(t, err)
			must.Eq(t, c.wanted, got)
		})
	}
	_, err := fakeProc(t, "lo", false).Deserted(9)
	must.Error(t, err)
}
