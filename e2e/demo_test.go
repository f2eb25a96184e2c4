// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The README's first command: two tasks on one GPU, in the output of `status`. Afterwards
// the host is as before. The host here is a set of namespaces, with IPv4 forwarding off
// and on.
func TestDemo(t *testing.T) {
	for store, forwarding := range map[string]string{"file": "0", "consul": "1"} {
		t.Run(store, func(t *testing.T) {
			run, err := os.MkdirTemp("", "gpu-mem-demo-")
			must.NoError(t, err)
			t.Cleanup(func() { must.NoError(t, os.RemoveAll(run)) })
			cmd := exec.Command(filepath.Join("..", "scripts", "alone.sh"), filepath.Join("testdata", "demo.sh"), store)
			cmd.Env = append(os.Environ(), "GPU_MEM_FORWARD="+forwarding, "GPU_MEM_RUN="+run, "GPU_MEM_GPUS=fake")
			out := output(t, cmd)
			must.StrContains(t, out, "Both tasks run.")
			must.StrContains(t, out, "running")
			must.StrContains(t, out, "== changed: forwarding 1")
			before := section(t, out, "before")
			must.StrContains(t, before, "forwarding: "+forwarding)
			must.Eq(t, strings.ReplaceAll(before, "path: "+run+"\n", ""), section(t, out, "after"))
		})
	}
}

// section returns the part of a text after the line "== name", up to the line "== end".
func section(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "== "+name+"\n")
	must.True(t, found, must.Sprint(text))
	part, _, _ := strings.Cut(rest, "== end\n")
	return part
}
