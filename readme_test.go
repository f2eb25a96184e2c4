// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/device"
	"nomad-gpu-mem/driver"
	"nomad-gpu-mem/internal/tableconfig"
)

// The tables of the documentation name every key, with its default. The task driver's are checked in its own package.
func TestConfigurationTables(t *testing.T) {
	t.Parallel()
	deviceSpec, err := device.New(hclog.NewNullLogger(), nil, nil).ConfigSchema()
	must.NoError(t, err)
	tests := []struct {
		file  string
		after string // the text that a table follows
		spec  *hclspec.Spec
	}{
		{file: "docs/device-plugin.md", after: "## Configuration", spec: deviceSpec},
		{file: "docs/consul-kv.md", after: "## Configuration", spec: tableconfig.Spec()},
	}
	for _, tc := range tests {
		t.Run(tc.file+": "+tc.after, func(t *testing.T) {
			t.Parallel()
			rows := tableIn(t, tc.file, tc.after)
			schema := tc.spec.GetObject().GetAttributes()
			for key, defaults := range rows {
				spec, exists := schema[key]
				must.True(t, exists, must.Sprintf("there is no key %s", key))
				if literal := spec.GetDefault().GetDefault().GetLiteral().GetValue(); literal != "" {
					must.Eq(t, strings.Trim(literal, `"`), strings.Trim(defaults, "`"), must.Sprint(key))
				}
			}
			must.Eq(t, slices.Sorted(maps.Keys(schema)), slices.Sorted(maps.Keys(rows)))
		})
	}
}

// tableIn returns the first table after a text: the last cells by the first.
func tableIn(t *testing.T, file, after string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.NoError(t, err)
	_, rest, found := strings.Cut(string(text), after)
	must.True(t, found)
	_, rest, _ = strings.Cut(rest, "|---|---|---|\n")
	rows := map[string]string{}
	row := regexp.MustCompile("^\\| `([a-z_]+)` \\| .* \\| (.*) \\|$")
	for line := range strings.Lines(rest) {
		match := row.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			break
		}
		rows[match[1]] = match[2]
	}
	must.MapNotEmpty(t, rows)
	return rows
}

// The README names the plugins, the driver and the device as the program does.
func TestREADMENames(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	must.NoError(t, err)
	for _, line := range []string{
		`plugin "` + deviceName + `" {`, `plugin "` + driverName + `" {`,
		`driver = "` + driver.Name + `"`, `device "` + allocator.Device + `" {`,
		"/plugins/" + deviceName + "\n", "/plugins/" + driverName + "\n",
	} {
		must.StrContains(t, string(readme), line)
	}
}

// What the README shows of `status` is what it prints.
func TestREADMEPicture(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	must.NoError(t, err)
	picture, err := os.ReadFile("internal/cli/testdata/node.txt")
	must.NoError(t, err)
	must.StrContains(t, string(readme), string(picture))
}
