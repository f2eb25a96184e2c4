// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/go-version"
	"github.com/shoenig/test/must"
)

// A build's version names its commit and marks changed files. Nomad accepts each such version.
func TestVersionOfABuild(t *testing.T) {
	t.Parallel()
	dir := copyOfScripts(t, "version.sh")
	source := filepath.Join(dir, "internal", "version", "version.go")
	must.NoError(t, os.MkdirAll(filepath.Dir(source), 0o755))
	must.NoError(t, os.WriteFile(source, []byte("package version\n\nvar Version = \"0.9.0-dev\"\n"), 0o644))
	is := func(pattern string) {
		t.Helper()
		said, err := script(t, dir, "version.sh")
		must.NoError(t, err, must.Sprint(said))
		must.RegexMatch(t, regexp.MustCompile("^"+pattern+"\n$"), said)
		_, err = version.NewVersion(strings.TrimSpace(said))
		must.NoError(t, err)
	}
	is(`0\.9\.0-dev\+unknown-dirty`)
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "--message", "first")
	is(`0\.9\.0-dev\+[0-9a-f]{12}`)

	untracked := filepath.Join(dir, "more.go")
	must.NoError(t, os.WriteFile(untracked, []byte("package main\n"), 0o644))
	is(`0\.9\.0-dev\+[0-9a-f]{12}-dirty`)
	must.NoError(t, os.Remove(untracked))

	git(t, dir, "tag", "v1.2.3")
	is(`1\.2\.3`)
	must.NoError(t, os.WriteFile(source, []byte("package version\n\nvar Version = \"0.9.1-dev\"\n"), 0o644))
	is(`1\.2\.3\+[0-9a-f]{12}-dirty`)
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "--message", "second")
	is(`0\.9\.1-dev\+[0-9a-f]{12}`)
}
