// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The check finds idioms in comments and strings, also over two lines, and not in code, correct phrases and exempt lines.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"comment.go", "package p\n\n// Nobody knows.\n", `comment.go:3: "nobody"`},                            // words.sh: quoted
		{"string.go", "package p\n\nconst a = \"begins anew\"\n", `string.go:3: "anew"`},                       // words.sh: quoted
		{"raw.go", "package p\n\nconst a = `x\nis told y`\n", `raw.go:4: "told"`},                              // words.sh: quoted
		{"code.go", "package p\n\nfunc (p person) told(anew int) {} // writes '\"' and \"//\"\n", ""},          // words.sh: quoted
		{"long.md", "The image cannot be\nhad.\n", `long.md:2: "cannot be had"`},                               // words.sh: quoted
		{"no.hcl", "# This is no image.\n", `no.hcl:1: "is no image"`},                                         // words.sh: quoted
		{"there.md", "There is no GPU. It is no longer there.\nWhere is no GPU\n\nis no more.\n", ""},          // words.sh: quoted
		{"quoted.sh", "# nobody, as Docker says; words.sh: quoted\n", ""},                                      // words.sh: quoted
		{"CONTRIBUTING.md", "| write | not |\n|---|---|\n| x | anew |\n\nanew\n", `CONTRIBUTING.md:5: "anew"`}, // words.sh: quoted
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := copyOfScripts(t, "words.sh", "lib.sh", "env.sh")
			must.NoError(t, os.WriteFile(filepath.Join(dir, tc.name), []byte(tc.text), 0o644))
			said, err := script(t, dir, "words.sh")
			if tc.want == "" {
				must.NoError(t, err, must.Sprint(said))
				return
			}
			must.Error(t, err)
			must.StrContains(t, said, tc.want+": write ")
			must.Eq(t, 2, strings.Count(said, "\n"), must.Sprint(said))
		})
	}
}
