// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// Each form of a source, with volumes.enabled and without. BASE is where the
// allocation's directory, "one", lies.
func TestHostPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source, want string
		inside       bool // allowed without volumes.enabled
	}{
		{"local/x", "BASE/one/app/local/x", true},
		{"./local/../local/x", "BASE/one/app/local/x", true},
		{".", "BASE/one/app", true},
		{"..", "BASE/one", true},
		{"../alloc/x", "BASE/one/alloc/x", true},
		{"../other/local", "BASE/one/other/local", true},
		{"BASE/one/app/x", "BASE/one/app/x", true},
		{"../../x", "BASE/x", false},
		{"../../one-2/x", "BASE/one-2/x", false},
		{"BASE/one/../x", "BASE/x", false},
		{"BASE/one-2/x", "BASE/one-2/x", false},
		{"/etc", "/etc", false},
		{"/", "/", false},
	} {
		t.Run(c.source, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			must.NoError(t, os.MkdirAll(filepath.Join(base, "one", "app", "local"), 0o755))
			for _, anywhere := range []bool{false, true} {
				paths := hostPaths{allocDir: filepath.Join(base, "one"), taskDir: filepath.Join(base, "one", "app"), anywhere: anywhere}
				got, err := paths.source(strings.Replace(c.source, "BASE", base, 1))
				if !anywhere && !c.inside {
					must.ErrorContains(t, err, "volumes are not enabled; cannot mount host path")
					continue
				}
				must.NoError(t, err)
				must.Eq(t, strings.Replace(c.want, "BASE", base, 1), got)
			}
		})
	}
}
