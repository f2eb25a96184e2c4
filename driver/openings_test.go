// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// openings are the calls by which a file of this package, or of one below it, may open, make or remove files without
// package taskfile, each with the reason why no task can have touched them. All others go through taskfile.
var openings = map[string]struct {
	calls  []string
	reason string
}{
	"logpipe/checkpoint.go": {[]string{"os.MkdirAll", "os.OpenFile", "os.ReadDir", "os.Remove"}, "state_dir"},
	"staging/area.go": {
		[]string{"os.Mkdir", "os.MkdirAll", "os.ReadDir", "os.Remove", "os.RemoveAll", "os.WriteFile"}, "state_dir",
	},
	"staging/visible.go": {[]string{"os.ReadFile"}, "/proc"},
	"staging/kernel.go":  {[]string{"unix.Mount", "unix.Unmount"}, "state_dir, and what is held"},
	"attempt/journal.go": {
		[]string{"os.MkdirAll", "os.ReadDir", "os.ReadFile", "os.Remove", "os.WriteFile", "renameio.WithTempDir", "renameio.WriteFile"},
		"state_dir",
	},
	"images/notes.go":              {[]string{"os.MkdirAll", "os.ReadFile", "os.Rename", "os.WriteFile"}, "state_dir"},
	"statefile/statefile.go":       {[]string{"os.ReadFile"}, "state_dir"},
	"attempt/node.go":              {[]string{"os.ReadFile", "renameio.WriteFile"}, "state_dir"},
	"attempt/instance.go":          {[]string{"os.MkdirAll", "os.OpenFile", "os.ReadFile", "renameio.WriteFile"}, "state_dir"},
	"logpipe/keeper.go":            {[]string{"os.MkdirAll", "os.RemoveAll"}, "its socket in state_dir"},
	"logpipe/pipe.go":              {[]string{"os.OpenFile"}, "/dev/null"},
	"cpuset.go":                    {[]string{"os.ReadFile"}, "the cgroup file system"},
	"containerspec/gpunodes.go":    {[]string{"filepath.Glob", "os.ReadFile"}, "/proc"},
	"containerspec/hostdevices.go": {[]string{"filepath.WalkDir"}, "/dev"},
	"containerspec/devicerules.go": {[]string{"filepath.Glob", "os.Open", "os.ReadFile"}, "/dev, /proc and /sys"},
	"netns/netns.go":               {[]string{"os.ReadDir", "os.ReadFile"}, "/proc"},
	"takeover.go":                  {[]string{"os.ReadFile"}, "/proc"},
	"docker/auth.go":               {[]string{"os.Open"}, "the operator's own configuration"},
	"docker/infraimage.go":         {[]string{"os.MkdirAll", "os.ReadFile", "renameio.WriteFile"}, "state_dir"},
	"docker/spool.go":              {[]string{"os.CreateTemp", "os.MkdirAll", "os.Remove"}, "state_dir"},
}

// opening are the beginnings of names by which functions open, make, change or remove files, by package.
var opening = map[string][]string{
	"os": {
		"Open", "ReadFile", "ReadDir", "DirFS", "CopyFS", "WriteFile", "Create", "Mkdir", "Remove", "Rename", "Link", "Symlink",
		"Truncate", "Chmod", "Chown", "Lchown", "Chtimes", "Chdir",
	},
	"ioutil":   {""},
	"renameio": {""},
	"filepath": {"Walk", "Glob"},
	"unix":     opensByCall,
	"syscall":  opensByCall,
}

var opensByCall = []string{
	"Open", "Creat", "Mk", "Unlink", "Rename", "Link", "Symlink", "Truncate", "Chmod", "Fchmodat", "Chown", "Fchownat", "Lchown",
	"Mount", "Unmount", "Rmdir", "Chroot", "Chdir",
}

// writers are packages of others that open, make or remove files at paths that they are given.
var writers = []string{
	"io/ioutil", "github.com/hashicorp/nomad/drivers/shared/resolvconf", "github.com/hashicorp/nomad/client/lib/fifo",
	"github.com/hashicorp/nomad/client/logmon/logging",
}

// Whatever a task could have touched is opened in one place.
func TestFilesAreOpenedInOnePlace(t *testing.T) {
	t.Parallel()
	found := map[string]map[string]bool{}
	must.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		dir := filepath.Dir(path)
		isTest := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(dir, "test") // such as logpipetest
		if err == nil && strings.HasSuffix(path, ".go") && !isTest && dir != "taskfile" {
			found[path] = openingsOf(t, path)
		}
		return err
	}))
	for path, calls := range found {
		for call := range calls {
			if !slices.Contains(openings[path].calls, call) {
				t.Errorf("%s uses %s: open what a task could have touched by package taskfile, or say in openings why none could", path, call)
			}
		}
	}
	for path, known := range openings {
		must.Eq(t, known.calls, slices.Sorted(maps.Keys(found[path])), must.Sprintf("%s no longer uses all that it may", path))
		must.NotEq(t, "", known.reason)
	}
}

// openingsOf are the calls of a file that open files, such as "os.Open". A package under another name counts by its own.
func openingsOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	must.NoError(t, err)
	names, calls := map[string]string{}, map[string]bool{}
	for _, spec := range file.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		must.False(t, slices.Contains(writers, imported), must.Sprintf("%s imports %s, which opens files by itself", path, imported))
		own := packageName(imported)
		if name := own; opening[own] != nil {
			if spec.Name != nil {
				name = spec.Name.Name
			}
			must.NotEq(t, ".", name, must.Sprintf("%s imports %s without a name", path, imported))
			names[name] = own
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if from, ok := selector.X.(*ast.Ident); ok && opens(names[from.Name], selector.Sel.Name) {
			calls[names[from.Name]+"."+selector.Sel.Name] = true
		}
		return true
	})
	return calls
}

func opens(name, function string) bool {
	return slices.ContainsFunc(opening[name], func(begin string) bool {
		return strings.HasPrefix(function, begin)
	})
}

// packageName is the last part of an import path that is not a version.
func packageName(path string) string {
	parts := strings.Split(path, "/")
	if last := parts[len(parts)-1]; len(parts) > 1 && strings.HasPrefix(last, "v") && strings.Trim(last[1:], "0123456789") == "" {
		parts = parts[:len(parts)-1]
	}
	return parts[len(parts)-1]
}
