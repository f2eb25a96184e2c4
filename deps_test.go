// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

const module = "nomad-gpu-mem"

// ownImports lists which packages of this module each of its packages may import.
// Imports go from main down to the allocator. The test fails for a package that is
// not listed.
var ownImports = map[string][]string{
	"device":                      {"allocator", "internal/boot", "internal/nvml", "internal/pause", "internal/quantity", "internal/schema", "internal/tableconfig", "internal/tellonce", "internal/version"},
	"driver":                      {"allocator", "driver/attempt", "driver/config", "driver/containerspec", "driver/docker", "driver/images", "driver/injection", "driver/label", "driver/logpipe", "driver/netfile", "driver/netns", "driver/statefile", "driver/staging", "driver/taskfile", "internal/boot", "internal/pause", "internal/tableconfig", "internal/tellonce", "internal/version"},
	"driver/attempt":              {"allocator", "driver/docker", "driver/label", "driver/logpipe", "driver/staging", "driver/statefile", "internal/tellonce"},
	"driver/config":               {"driver/docker", "driver/label", "driver/logpipe", "internal/quantity", "internal/schema", "internal/tableconfig"},
	"driver/configtest":           {"driver/config"},
	"driver/containerspec":        {"allocator", "driver/config", "driver/docker", "driver/injection", "driver/label", "driver/taskfile"},
	"driver/docker":               {"driver/statefile", "internal/pause"},
	"driver/images":               {"driver/config", "driver/docker", "driver/statefile"},
	"driver/injection":            {"allocator", "driver/config", "driver/docker"},
	"driver/label":                {"allocator", "driver/docker"},
	"driver/logpipe":              {"driver/docker", "driver/statefile", "driver/taskfile", "internal/pause"},
	"driver/logpipe/logpipetest":  {},
	"driver/netfile":              {"driver/taskfile"},
	"driver/netns":                {},
	"driver/staging":              {"driver/taskfile"},
	"driver/statefile":            {},
	"driver/taskfile":             {},
	"internal/doctor":             {"allocator"},
	"internal/cli":                {"allocator", "allocator/placement", "allocator/profile", "internal/doctor", "internal/pause", "internal/planner", "internal/planner/live", "internal/planner/webhook", "internal/quantity", "internal/simulate", "internal/simulate/nomad", "internal/status", "internal/tableconfig", "internal/version", "internal/words"},
	"internal/planner":            {"allocator", "allocator/placement", "allocator/profile", "internal/words"},
	"internal/planner/live":       {"allocator", "internal/pause", "internal/planner", "internal/tellonce"},
	"internal/planner/nomadtest":  {"allocator"},
	"internal/planner/webhook":    {"internal/planner"},
	"internal/simulate":           {"allocator/placement"},
	"internal/simulate/nomad":     {"allocator", "allocator/placement", "internal/planner", "internal/simulate"},
	"internal/boot":               {},
	"internal/nvml":               {"internal/pause"},
	"internal/nvml/fakenvml":      {},
	"internal/pause":              {},
	"internal/quantity":           {},
	"internal/schema":             {},
	"internal/tellonce":           {},
	"internal/tableconfig":        {"allocator", "internal/schema"},
	"internal/status":             {"allocator", "internal/words"},
	"internal/words":              {},
	"internal/version":            {},
	"allocator":                   {"allocator/internal/keepjson"},
	"allocator/internal/keepjson": {},
	"allocator/consul":            {"allocator"},
	"allocator/file":              {"allocator"},
	"allocator/placement":         {},
	"allocator/profile":           {},
	"allocator/consul/consultest": {},
	"allocator/storetest":         {"allocator"},
	"scripts/fakenvml":            {"internal/nvml/fakenvml"},
}

// pure are packages of rules: they import the standard library only, and each other.
var pure = []string{"allocator", "allocator/internal/keepjson", "allocator/placement", "allocator/profile"}

// reserved are packages that only some of ours may import.
var reserved = []struct {
	path    string
	by      []string
	because string
}{
	{
		path: "github.com/NVIDIA/go-nvml", by: []string{"internal/nvml"},
		because: "calls into the C library can hang: one package knows how to survive that",
	},
	{
		path: "github.com/hashicorp/consul/api", by: []string{"allocator/consul", "allocator/consul/consultest"},
		because: "consistency and errors of Consul are decided in one place",
	},
	{
		path: "github.com/docker/docker/client", by: []string{"driver/docker"},
		because: "what an engine's errors mean is decided in one place",
	},
	{
		path: "github.com/hashicorp/nomad/scheduler", by: []string{"internal/planner", "internal/planner/nomadtest", "internal/simulate/nomad"},
		because: "it is an inner part of Nomad, taken only where its very verdict is needed",
	},
	{
		path: "github.com/hashicorp/nomad/plugins", by: []string{"", "device", "driver", "driver/attempt", "driver/config", "driver/containerspec", "driver/netfile", "internal/schema", "internal/tableconfig", "internal/planner/nomadtest", "internal/simulate/nomad"},
		because: "the table and the commands must outlive changes of Nomad's plugin interface",
	},
}

// never are imports that tests must not have either.
var never = []struct{ from, to, because string }{
	{"device", "driver", "the plugins are two processes; they meet in the table and in a task's environment"},
	{"driver", "device", "the plugins are two processes; they meet in the table and in a task's environment"},
	{"device", "internal/cli", "the plugins know nothing of commands"},
	{"driver", "internal/cli", "the plugins know nothing of commands"},
	{"driver", "internal/nvml", "the driver learns of a GPU from its booking"},
	{"driver/docker", "allocator", "the engine's adapter knows nothing of GPUs and claims"},
	{"internal/cli", "device", "commands read the table"},
	{"internal/cli", "driver", "commands read the table"},
	{"internal/cli", "internal/nvml", "commands read the table"},
	{"", "e2e", "it holds tests of the whole"},
}

// goPackage is a package in the output of `go list`.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// name is the path below the module, "" for main.
func (p goPackage) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			checkOwn(t, p.name(), imported)
			checkReserved(t, p.name(), imported)
			own, isOwn := strings.CutPrefix(imported, module+"/")
			isPure := isStandard(imported) || isOwn && slices.Contains(pure, own)
			if slices.Contains(pure, p.name()) && !isPure {
				t.Errorf("%s imports %s: what decides uses the standard library only", p.name(), imported)
			}
		}
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			checkNever(t, p.name(), imported)
		}
	}
}

func checkOwn(t *testing.T, name, imported string) {
	own, isOwn := strings.CutPrefix(imported, module+"/")
	if !isOwn || name == "" || within(name, "e2e") {
		return
	}
	allowed, known := ownImports[name]
	if !known {
		t.Errorf("package %s is not in ownImports: say there what it may import", name)
	} else if !slices.Contains(allowed, own) {
		t.Errorf("package %s imports %s; it may import %v", name, own, allowed)
	}
}

func checkReserved(t *testing.T, name, imported string) {
	for _, r := range reserved {
		if within(imported, r.path) && !slices.Contains(r.by, name) && !within(name, "e2e") {
			t.Errorf("package %s imports %s; only %q may: %s", name, imported, r.by, r.because)
		}
	}
}

func checkNever(t *testing.T, name, imported string) {
	for _, n := range never {
		if (n.from == "" || within(name, n.from)) && within(imported, module+"/"+n.to) && !within(name, n.to) {
			t.Errorf("package %s imports %s: %s", name, imported, n.because)
		}
	}
}

// packages lists all packages of the module, those behind build tags too.
func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags=services,e2e",
		"-json=ImportPath,Imports,TestImports,XTestImports", "./...").Output()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	must.NoError(t, err)
	var all []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// within reports whether path is root or is below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// isStandard reports whether a package is of the standard library: its path has no domain.
func isStandard(path string) bool {
	domain, _, _ := strings.Cut(path, "/")
	return domain != module && !strings.Contains(domain, ".")
}
