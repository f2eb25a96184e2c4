// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

// An operator learns of a toolkit that opens the host, where its version can be found.
func TestFingerprintOfTheToolkit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		warns  bool
	}{
		"old":        {"echo NVIDIA Container Runtime version 1.17.7; echo spec: 1.2.0; exit 1", true},
		"first safe": {"echo NVIDIA Container Runtime version 1.17.8", false},
		"new":        {"echo NVIDIA Container Runtime version 1.20.2-rc.1", false},
		"unknown":    {"echo runc version 1.1.5", false},
		"failing":    {"exit 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runtime := filepath.Join(dir, "nvidia-container-runtime")
			program(t, runtime, fmt.Sprintf("echo \"$@\" >>%s/asked\n%s", dir, c.script))
			w := newWorld(t)
			w.engine.change(func() { w.engine.runtimePaths = map[string]string{"nvidia": runtime, "runc": "/does/not/count"} })
			prints, err := w.boot().Fingerprint(t.Context())
			must.NoError(t, err)
			first := <-prints
			must.Eq(t, drivers.HealthStateHealthy, first.Health)
			if c.warns {
				must.StrContains(t, first.HealthDescription, "NVIDIA Container Toolkit 1.17.7")
				must.StrContains(t, first.HealthDescription, "update it to 1.17.8")
			} else {
				must.Eq(t, drivers.DriverHealthy, first.HealthDescription)
			}
			w.engine.change(func() { w.engine.runtimes = []string{"runc"} })
			<-prints
			asked, err := os.ReadFile(filepath.Join(dir, "asked"))
			must.NoError(t, err)
			must.Eq(t, "--version\n", string(asked), must.Sprint("once"))
		})
	}
}

// program makes a shell script. Another process writes it: one of this process, forked
// by another test just then, would have it open for writing, and it could not be run.
func program(t *testing.T, path, script string) {
	t.Helper()
	install := exec.CommandContext(t.Context(), "install", "-m", "755", "/dev/stdin", path)
	install.Stdin = strings.NewReader("#!/bin/sh\n" + script + "\n")
	out, err := install.CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
}

func TestToolkitOfAnotherHostIsNotAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = `endpoint = "tcp://10.0.0.1:2376"`
	marker := filepath.Join(t.TempDir(), "asked")
	runtime := marker + ".sh"
	program(t, runtime, "touch "+marker)
	w.engine.change(func() { w.engine.runtimePaths = map[string]string{"nvidia": runtime} })
	prints, err := w.boot().Fingerprint(t.Context())
	must.NoError(t, err)
	must.Eq(t, drivers.DriverHealthy, (<-prints).HealthDescription)
	_, err = os.Stat(marker)
	must.ErrorIs(t, err, os.ErrNotExist)
}
