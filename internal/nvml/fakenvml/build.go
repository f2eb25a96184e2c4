// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package fakenvml

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Library is the file name of the library, the same as NVIDIA's.
const Library = "libnvidia-ml.so.1"

//go:embed c
var sources embed.FS

// Build compiles the library into dir with gcc and returns its path. The
// functions named in without are left out, as in an older driver. NVML's own
// header, from the go-nvml module, checks the prototypes.
func Build(dir string, without ...string) (string, error) {
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("finding nvml.h in the go-nvml module: %w", err)
	}
	work, err := os.MkdirTemp(dir, "fakenvml-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.CopyFS(work, sources); err != nil {
		return "", fmt.Errorf("unpacking sources: %w", err)
	}
	hidden := filepath.Join(work, "hidden.map")
	if err := os.WriteFile(hidden, []byte(versionScript(without)), 0o600); err != nil {
		return "", err
	}
	files, err := fs.Glob(os.DirFS(work), "c/*.c")
	if err != nil {
		return "", err
	}
	library := filepath.Join(dir, Library)
	args := append([]string{
		"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
		"-shared", "-fPIC", "-pthread", "-Wl,-soname," + Library, "-Wl,--version-script=" + hidden,
		"-I", filepath.Join(strings.TrimSpace(string(header)), "pkg", "nvml"), "-o", library,
	}, files...)
	gcc := exec.Command("gcc", args...)
	gcc.Dir = work
	if out, err := gcc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", Library, err, out)
	}
	return library, nil
}

// versionScript is the linker script that hides the other symbols.
func versionScript(hide []string) string {
	local := ""
	for _, symbol := range hide {
		local += symbol + "; "
	}
	if local == "" {
		return "{ global: nvml*; local: *; };"
	}
	return "{ global: nvml*; local: " + local + "*; };"
}
