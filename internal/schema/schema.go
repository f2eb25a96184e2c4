// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package schema builds the HCL schemas of plugin and job blocks, in code that reads like the
// block.
package schema

import "github.com/hashicorp/nomad/plugins/shared/hclspec"

// Field is one named entry of a schema; the functions below build one of each kind.
type Field struct {
	name string
	spec *hclspec.Spec
}

// Object is the schema of a block's body.
func Object(fields ...Field) *hclspec.Spec {
	specs := make(map[string]*hclspec.Spec, len(fields))
	for _, f := range fields {
		specs[f.name] = f.spec
	}
	return hclspec.NewObject(specs)
}

// Attr is a key with a value of this kind, in the notation of Nomad: "list(number)".
func Attr(name, kind string) Field { return Field{name, hclspec.NewAttr(name, kind, false)} }

// Required is a required Attr.
func Required(name, kind string) Field { return Field{name, hclspec.NewAttr(name, kind, true)} }

// Text is a key with a string.
func Text(name string) Field { return Attr(name, "string") }

// Texts is a key with a list of strings.
func Texts(name string) Field { return Attr(name, "list(string)") }

// Flag is a key with true or false.
func Flag(name string) Field { return Attr(name, "bool") }

// Number is a key with a number.
func Number(name string) Field { return Attr(name, "number") }

// Numbers is a key with a list of numbers.
func Numbers(name string) Field { return Attr(name, "list(number)") }

// TextMap accepts a block, an assignment and JSON's list of objects alike.
func TextMap(name string) Field { return Attr(name, "list(map(string))") }

// Attributes is a block in which any key may have a string.
func Attributes(name string) Field {
	return Field{name, hclspec.NewBlockAttrs(name, "string", false)}
}

// Block is a block with these fields.
func Block(name string, fields ...Field) Field { return BlockOf(name, Object(fields...)) }

// BlockOf is a block with the given body.
func BlockOf(name string, body *hclspec.Spec) Field {
	return Field{name, hclspec.NewBlock(name, false, body)}
}

// Blocks is a block that may be repeated.
func Blocks(name string, fields ...Field) Field {
	return Field{name, hclspec.NewBlockList(name, Object(fields...))}
}

// LabelledBlocks is a block that may be repeated with different labels.
func LabelledBlocks(name, label string, fields ...Field) Field {
	return Field{name, hclspec.NewBlockMap(name, []string{label}, Object(fields...))}
}

// Default gives a field a default, as an HCL literal.
func Default(f Field, literal string) Field {
	return Field{f.name, hclspec.NewDefault(f.spec, hclspec.NewLiteral(literal))}
}
