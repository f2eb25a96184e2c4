// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// agentLog returns what Nomad's agent and its plugins have logged so far.
func (c *cluster) agentLog(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.run, "nomad.log"))
	must.NoError(t, err)
	return string(text)
}

// aboutDevices are lines of the device plugin, of the agent's manager of device
// plugins, and about devices without statistics.
var aboutDevices = regexp.MustCompile(`nomad-device-gpu-mem|device_mgr|not found in stats`)

// deviceComplaints returns the warnings and errors about devices in a log.
func deviceComplaints(log string) []string {
	var lines []string
	for line := range strings.Lines(log) {
		loud := strings.Contains(line, "[WARN]") || strings.Contains(line, "[ERROR]")
		if loud && aboutDevices.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
