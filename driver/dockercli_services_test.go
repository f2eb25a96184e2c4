// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// dockerCommand runs Docker's own command and returns what it printed to its standard
// output. Warnings, such as that IPv4 forwarding is off, go to the other one, and must
// not be taken for a part of an ID.
func dockerCommand(t *testing.T, args ...string) string {
	t.Helper()
	var warnings bytes.Buffer
	cmd := exec.Command("docker", args...)
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	must.NoError(t, err, must.Sprintf("docker %v: %s%s", args, out, warnings.String()))
	return strings.TrimSpace(string(out))
}
