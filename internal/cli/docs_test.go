// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/status"
)

// docs/cli.md explains every field of the JSON, names every command and flag, and shows a
// picture as it is drawn.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	must.NoError(t, err)
	doc := string(text)

	picture, err := os.ReadFile("testdata/node.txt")
	must.NoError(t, err)
	must.StrContains(t, doc, string(picture))

	for _, field := range slices.Concat(jsonFields(reflect.TypeFor[status.Report]()), jsonFields(reflect.TypeFor[doctorReport]())) {
		must.StrContains(t, doc, "`"+field+"`")
	}
	root := newWorld().app().newRoot()
	for _, name := range []string{"status", "cordon", "uncordon", "doctor", "claim", "release", "plan", "run", "replan", "webhook",
		"profile set", "profile show", "profile list", "profile delete", "profile test", "simulate"} {
		cmd, _, err := root.Find(strings.Fields(name))
		must.NoError(t, err)
		must.StrContains(t, doc, "| `"+strings.TrimSuffix(cmd.UseLine(), " [flags]")+"` |")
		for _, flags := range []*pflag.FlagSet{root.PersistentFlags(), cmd.LocalNonPersistentFlags()} {
			flags.VisitAll(func(flag *pflag.Flag) { must.StrContains(t, doc, "`--"+flag.Name) })
		}
	}
}

// docs/planner.md explains every field of what the planner prints as JSON, every
// key of meta and every policy.
func TestPlannerDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/planner.md")
	must.NoError(t, err)
	doc := string(text)
	for _, form := range []reflect.Type{reflect.TypeFor[planner.Plan](), reflect.TypeFor[live.Report](), reflect.TypeFor[live.Replanned]()} {
		for _, field := range jsonFields(form) {
			if field != "-" {
				must.StrContains(t, doc, "`"+field+"`")
			}
		}
	}
	for _, key := range []string{planner.MetaAmount, planner.MetaProfile, planner.MetaApart, planner.MetaPlanned, planner.MetaLimits} {
		must.StrContains(t, doc, "`"+key+"`")
	}
	for _, policy := range placement.Policies() {
		must.StrContains(t, doc, "| `"+policy.Name+"` |")
	}
}

// jsonFields returns the names of all fields that a value of the type has as
// JSON, at any depth.
func jsonFields(t reflect.Type) []string {
	switch {
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer:
		return jsonFields(t.Elem())
	case t.Kind() != reflect.Struct || t.PkgPath() == "time":
		return nil
	}
	var names []string
	for field := range t.Fields() {
		if !field.IsExported() {
			continue
		}
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
		names = append(names, jsonFields(field.Type)...)
	}
	return names
}
