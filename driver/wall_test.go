// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// Only package attempt can release a claim: the driver keeps a table that has no such method, and converts it to no other.
func TestOnlyAttemptsReleaseClaims(t *testing.T) {
	t.Parallel()
	releases := []string{"Release", "Stuck", "PurgeKey", "PurgeNode", "PurgeGPU"}
	for _, name := range releases {
		_, has := reflect.TypeFor[taskTable]().MethodByName(name)
		must.False(t, has, must.Sprint(name))
	}
	kept, found := reflect.TypeFor[services]().FieldByName("table")
	must.True(t, found)
	must.Eq(t, reflect.TypeFor[taskTable](), kept.Type)

	files, err := filepath.Glob("*.go")
	must.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if cast, ok := n.(*ast.TypeAssertExpr); ok {
				if name, ok := cast.Type.(*ast.Ident); ok {
					must.NotEq(t, "Table", name.Name, must.Sprintf("%s asserts a whole Table", file))
				}
			}
			return true
		})
	}
}
