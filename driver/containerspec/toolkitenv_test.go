// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// harmlessToolkitVariables are what the NVIDIA Container Toolkit reads and a job may set,
// by name or by the beginning of it, and why.
var harmlessToolkitVariables = map[string]string{
	"NVIDIA_DRIVER_CAPABILITIES": "which of the driver's libraries are mounted, and nodes of the container's own GPUs for them",
	"NVIDIA_DISABLE_REQUIRE":     "skips the comparison of the image's requirements with the driver",
	"NVIDIA_REQUIRE_":            "requirements on the driver: the container does not start if they are not met",
}

// A later toolkit may know further variables by which a container asks for devices or
// mounts. Each must be one of the driver's own, or known to be harmless.
func TestToolkitVariablesAreKnown(t *testing.T) {
	t.Parallel()
	names := toolkitVariables(t)
	for _, present := range []string{VisibleDevices, "NVIDIA_MOFED", "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_DISABLE_REQUIRE"} {
		must.MapContainsKey(t, names, present, must.Sprint("the sources were not read right"))
	}
	for name, file := range names {
		_, harmless := harmlessToolkitVariables[name]
		must.True(t, harmless != reservedKey(name), must.Sprintf(
			"%s in %s is neither the driver's own (reservedKey) nor known to be harmless, or both: find out what it does", name, file))
	}
	for name := range harmlessToolkitVariables {
		must.MapContainsKey(t, names, name)
	}
}

// toolkitVariables are the names in the toolkit's string literals, with a file of each.
func toolkitVariables(t *testing.T) map[string]string {
	t.Helper()
	name := regexp.MustCompile(`^NVIDIA_[A-Z0-9_]+`)
	found := map[string]string{}
	dir := toolkitSources(t)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && name.MatchString(text) {
				found[name.FindString(text)] = strings.TrimPrefix(path, dir)
			}
			return true
		})
		return nil
	})
	must.NoError(t, err)
	return found
}

// toolkitSources is the module of the toolkit that the development cluster uses.
func toolkitSources(t *testing.T) string {
	t.Helper()
	const module = "github.com/NVIDIA/nvidia-container-toolkit"
	run := func(args ...string) string {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = "../../scripts/tools/toolkit"
		out, err := command.Output()
		must.NoError(t, err, must.Sprintf("go %v", args))
		return strings.TrimSpace(string(out))
	}
	run("mod", "download", module)
	return run("list", "-m", "-f", "{{.Dir}}", module)
}
