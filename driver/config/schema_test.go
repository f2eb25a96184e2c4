// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
)

// No key is forgotten: the schema, the struct that it is read into and the file that
// shows every key have the same ones.
func TestSchemaStructAndExampleAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file string
		spec *hclspec.Spec
		into any
	}{
		{"testdata/task.hcl", TaskSpec(), TaskConfig{}},
		{"testdata/plugin.hcl", Spec(), Config{}},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			keys := schemaKeys(c.spec)
			must.Eq(t, keys, structKeys(reflect.TypeOf(c.into)))
			raw := hclutils.HclConfigToInterface(t, read(t, c.file))
			must.Eq(t, keys, presentKeys(c.spec, raw))
		})
	}
}

// schemaKeys are the keys of a block and of the blocks in it, such as "auth.username".
func schemaKeys(spec *hclspec.Spec) []string {
	var keys []string
	for name, field := range spec.GetObject().GetAttributes() {
		keys = append(keys, name)
		for _, inner := range schemaKeys(nested(field)) {
			keys = append(keys, name+"."+inner)
		}
	}
	slices.Sort(keys)
	return keys
}

// nested is the schema of a block's body, and one without keys for any other field.
func nested(field *hclspec.Spec) *hclspec.Spec {
	switch {
	case field.GetDefault() != nil:
		return nested(field.GetDefault().GetPrimary())
	case field.GetBlockValue() != nil:
		return field.GetBlockValue().GetNested()
	case field.GetBlockList() != nil:
		return field.GetBlockList().GetNested()
	}
	return nil
}

// structKeys are the same by the tags of a struct.
func structKeys(in reflect.Type) []string {
	if in.Kind() == reflect.Slice {
		in = in.Elem()
	}
	if in.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for field := range in.Fields() {
		name := field.Tag.Get("codec")
		keys = append(keys, name)
		for _, inner := range structKeys(field.Type) {
			keys = append(keys, name+"."+inner)
		}
	}
	slices.Sort(keys)
	return keys
}

// presentKeys are those of the schema that a file has, in any of a list's blocks.
func presentKeys(spec *hclspec.Spec, raw any) []string {
	found := map[string]bool{}
	for _, body := range bodies(raw) {
		for name, value := range body {
			field, known := spec.GetObject().GetAttributes()[name]
			if !known {
				continue // of a map with keys of the job's own
			}
			found[name] = true
			for _, inner := range presentKeys(nested(field), value) {
				found[name+"."+inner] = true
			}
		}
	}
	var keys []string
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// bodies are the blocks that HCL decodes to, one or many.
func bodies(raw any) (all []map[string]any) {
	switch raw := raw.(type) {
	case map[string]any:
		return []map[string]any{raw}
	case []map[string]any:
		return raw
	case []any:
		for _, one := range raw {
			all = append(all, bodies(one)...)
		}
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.NoError(t, err)
	return string(text[strings.Index(string(text), "config {"):])
}
