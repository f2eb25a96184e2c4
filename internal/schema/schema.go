// Package schema builds HCL schemas of plugin and job blocks.
package schema

import "github.com/hashicorp/nomad/plugins/shared/hclspec"

// Field is one named entry of an HCL schema; the functions below build one of
// each kind, so that a schema reads like the block that it describes.
type Field struct {
	name string
	spec *hclspec.Spec
}

func Object(fields ...Field) *hclspec.Spec {
	specs := make(map[string]*hclspec.Spec, len(fields))
	for _, f := range fields {
		specs[f.name] = f.spec
	}
	return hclspec.NewObject(specs)
}

func Attr(name, kind string) Field { return Field{name, hclspec.NewAttr(name, kind, false)} }

func Text(name string) Field   { return Attr(name, "string") }
func Texts(name string) Field  { return Attr(name, "list(string)") }
func Flag(name string) Field   { return Attr(name, "bool") }
func Number(name string) Field { return Attr(name, "number") }

// TextMap accepts a block, an assignment and JSON's list of objects alike.
func TextMap(name string) Field { return Attr(name, "list(map(string))") }

// Attributes is a block whose keys are free.
func Attributes(name string) Field {
	return Field{name, hclspec.NewBlockAttrs(name, "string", false)}
}

func Block(name string, fields ...Field) Field {
	return Field{name, hclspec.NewBlock(name, false, Object(fields...))}
}

func Blocks(name string, fields ...Field) Field {
	return Field{name, hclspec.NewBlockList(name, Object(fields...))}
}

// Default gives a field the HCL literal that stands in for a missing value.
func Default(f Field, literal string) Field {
	return Field{f.name, hclspec.NewDefault(f.spec, hclspec.NewLiteral(literal))}
}

// Required is an Attr that must not be missing.
func Required(name, kind string) Field { return Field{name, hclspec.NewAttr(name, kind, true)} }

// BlockOf is a block with a body that is described elsewhere.
func BlockOf(name string, body *hclspec.Spec) Field {
	return Field{name, hclspec.NewBlock(name, false, body)}
}
