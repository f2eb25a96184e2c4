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

	"nomad-gpu-mem/device"
	"nomad-gpu-mem/driver"
	"nomad-gpu-mem/internal/tableconfig"
)

// The tables of README and docs name keys that exist, with the defaults that they
// have. Of the plugins' keys the README names the most important ones only.
func TestConfigurationTables(t *testing.T) {
	t.Parallel()
	deviceSpec, err := device.New(hclog.NewNullLogger(), nil, nil).ConfigSchema()
	must.NoError(t, err)
	driverSpec, err := driver.New(t.Context(), hclog.NewNullLogger(), driver.Name, nil, nil).ConfigSchema()
	must.NoError(t, err)
	tests := []struct {
		file     string
		after    string // the text that a table follows
		spec     *hclspec.Spec
		complete bool
	}{
		{file: "docs/device-plugin.md", after: "## Configuration", spec: deviceSpec, complete: true},
		{file: "README.md", after: "Device plugin `nomad-device-gpu-mem`", spec: deviceSpec},
		{file: "README.md", after: "Task driver `nomad-driver-gpu-docker`", spec: driverSpec},
		{file: "README.md", after: "The block `table` of both", spec: tableconfig.Spec(), complete: true},
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
			if tc.complete {
				must.Eq(t, slices.Sorted(maps.Keys(schema)), slices.Sorted(maps.Keys(rows)))
			}
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

// What the README shows of `status` is what it prints.
func TestREADMEPicture(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	must.NoError(t, err)
	picture, err := os.ReadFile("internal/cli/testdata/node.txt")
	must.NoError(t, err)
	must.StrContains(t, string(readme), string(picture))
}
