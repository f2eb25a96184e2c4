// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import "github.com/hashicorp/nomad/plugins/shared/hclspec"

// field is one named entry of an HCL schema; the functions below build one of
// each kind, so that a schema reads like the block that it describes.
type field struct {
	name string
	spec *hclspec.Spec
}

func object(fields ...field) *hclspec.Spec {
	specs := make(map[string]*hclspec.Spec, len(fields))
	for _, f := range fields {
		specs[f.name] = f.spec
	}
	return hclspec.NewObject(specs)
}

func attr(name, kind string) field { return field{name, hclspec.NewAttr(name, kind, false)} }

func text(name string) field   { return attr(name, "string") }
func texts(name string) field  { return attr(name, "list(string)") }
func flag(name string) field   { return attr(name, "bool") }
func number(name string) field { return attr(name, "number") }

// textMap accepts a block, an assignment and JSON's list of objects alike.
func textMap(name string) field { return attr(name, "list(map(string))") }

// attributes is a block whose keys are free.
func attributes(name string) field {
	return field{name, hclspec.NewBlockAttrs(name, "string", false)}
}

func block(name string, fields ...field) field {
	return field{name, hclspec.NewBlock(name, false, object(fields...))}
}

func blocks(name string, fields ...field) field {
	return field{name, hclspec.NewBlockList(name, object(fields...))}
}

// withDefault gives a field the HCL literal that stands in for a missing value.
func withDefault(f field, literal string) field {
	return field{f.name, hclspec.NewDefault(f.spec, hclspec.NewLiteral(literal))}
}
