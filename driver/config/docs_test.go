// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
)

// The tables of the documentation name the keys that there are, in a status that is
// explained, with the defaults that they have.
func TestDocsNameEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/docker-driver.md")
	must.NoError(t, err)
	status := regexp.MustCompile(`^(same|likewise|stricter: .+|more: .+|accepted, ignored: .+)|^same[ ,;:].+`)
	for _, c := range []struct {
		section string
		spec    *hclspec.Spec
		opaque  string // block that another table explains
	}{
		{"## Task options", TaskSpec(), "mounts"},
		{"## Plugin options", Spec(), "table"},
	} {
		rows := tableAfter(t, string(text), c.section)
		want := leaves(c.spec, c.opaque)
		var documented []string
		for _, row := range rows {
			documented = append(documented, row.key)
			must.RegexMatch(t, status, row.status, must.Sprint(row.key))
			field, known := want[row.key]
			must.True(t, known, must.Sprintf("there is no key %s", row.key))
			literal := field.GetDefault().GetDefault().GetLiteral().GetValue()
			if literal = strings.Trim(literal, `"`); literal != "" && row.key != "allow_caps" {
				must.Eq(t, strings.ReplaceAll(literal, runtime.GOARCH, "<arch>"), strings.Trim(row.value, "`"), must.Sprint(row.key))
			}
		}
		must.Len(t, len(want), documented)
		must.Eq(t, documented, slices.Compact(slices.Clone(documented)))
	}
}

// leaves are the keys that take a value, with their schemas.
func leaves(spec *hclspec.Spec, opaque string) map[string]*hclspec.Spec {
	all := map[string]*hclspec.Spec{}
	for name, field := range spec.GetObject().GetAttributes() {
		inner := leaves(nested(field), opaque)
		if len(inner) == 0 || name == opaque {
			all[name] = field
			continue
		}
		for key, leaf := range inner {
			all[name+"."+key] = leaf
		}
	}
	return all
}

type docRow struct{ key, status, value string }

// tableAfter reads the first table after a heading.
func tableAfter(t *testing.T, text, heading string) (rows []docRow) {
	t.Helper()
	_, rest, found := strings.Cut(text, heading)
	must.True(t, found)
	_, rest, _ = strings.Cut(rest, "|---|---|---|\n")
	row := regexp.MustCompile("^\\| `([a-z0-9_.]+)` \\| (.*) \\| (.*) \\|$")
	for line := range strings.Lines(rest) {
		match := row.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			break
		}
		rows = append(rows, docRow{match[1], match[2], match[3]})
	}
	must.SliceNotEmpty(t, rows)
	return rows
}
