// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The help and the manual name each kind of finding.
func TestDoctorHelpNamesEveryKind(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../doctor/finding.go")
	must.NoError(t, err)
	manual, err := os.ReadFile("../../docs/cli.md")
	must.NoError(t, err)
	kinds := regexp.MustCompile(`Kind = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	must.Greater(t, 8, len(kinds))
	for _, kind := range kinds {
		must.StrContains(t, doctorLong, "\n  "+kind[1]+" ")
		must.True(t, strings.Contains(string(manual), "\n| "+kind[1]+" "), must.Sprintf("docs/cli.md has no %q", kind[1]))
	}
}
