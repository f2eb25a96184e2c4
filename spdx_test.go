// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

// The check finds a source file without the licence lines, and adding them does not change the file's meaning.
func TestLicenceLines(t *testing.T) {
	t.Parallel()
	const goLines = "// Copyright the nomad-gpu-mem authors\n// SPDX-License-Identifier: MPL-2.0\n\n"
	const shellLines = "# Copyright the nomad-gpu-mem authors\n# SPDX-License-Identifier: MPL-2.0\n\n"
	files := []struct{ name, before, after string }{
		{"doc.go", "// Package p is documented.\npackage p\n", goLines + "// Package p is documented.\npackage p\n"},
		{"tag.go", "//go:build e2e\n\npackage p\n", goLines + "//go:build e2e\n\npackage p\n"},
		{"run.sh", "#!/bin/sh\n# Runs.\ntrue\n", "#!/bin/sh\n" + shellLines + "# Runs.\ntrue\n"},
		{"lib.sh", "# shellcheck shell=bash\n", shellLines + "# shellcheck shell=bash\n"},
		{"marked.c", goLines + "int x;\n", goLines + "int x;\n"},
		{"data.json", "{}\n", "{}\n"},
	}
	dir := copyOfScripts(t, "spdx.sh", "lib.sh", "env.sh")
	for _, f := range files {
		must.NoError(t, os.WriteFile(filepath.Join(dir, f.name), []byte(f.before), 0o755))
	}
	said, err := script(t, dir, "spdx.sh", "check")
	must.Error(t, err)
	must.StrContains(t, said, "doc.go")
	must.StrNotContains(t, said, "marked.c")

	_, err = script(t, dir, "spdx.sh", "write")
	must.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.name))
		must.NoError(t, err)
		must.Eq(t, f.after, string(text), must.Sprint(f.name))
	}
	said, err = script(t, dir, "spdx.sh", "check")
	must.NoError(t, err, must.Sprint(said))
}

// copyOfScripts returns the folder of a repository that has only copies of some scripts.
func copyOfScripts(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	must.NoError(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("scripts", name))
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(filepath.Join(dir, "scripts", name), text, 0o755))
	}
	git(t, dir, "init", "--quiet")
	return dir
}

// git runs git in a folder, with an author.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	must.NoError(t, err, must.Sprintf("%s", out))
}

// script runs a script of a folder, and returns what it printed.
func script(t *testing.T, dir, name string, args ...string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "scripts/"+name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
