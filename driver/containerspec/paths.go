// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"path/filepath"
	"strings"

	"nomad-gpu-mem/driver/taskfile"
)

// hostPaths decides which paths of the host a job may use as sources.
type hostPaths struct {
	allocDir string // everything under it belongs to the allocation
	taskDir  string // what relative paths start from
	anywhere bool   // volumes.enabled
}

func (b *builder) paths() hostPaths {
	return hostPaths{
		allocDir: b.Task.AllocDir,
		taskDir:  b.Task.TaskDir().Dir,
		anywhere: b.Settings.Volumes.Enabled,
	}
}

// source returns the absolute path that a job means, if the job may use it. Inside
// the allocation's directory a link must not lead out of it: the task could have
// made the link itself in an earlier run. The result has no links below that directory;
// see stageSources for what changes later.
func (p hostPaths) source(path string) (string, error) {
	path, inside, err := p.resolve(path)
	if err != nil || inside == "" {
		return path, err
	}
	dir, err := taskfile.OpenDir(p.allocDir)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if err := dir.Contains(inside); err != nil {
		return "", fmt.Errorf("cannot use %q: %w", path, err)
	}
	inside, err = filepath.Rel(leadsTo(p.allocDir), leadsTo(path))
	if err != nil || !filepath.IsLocal(inside) {
		return "", fmt.Errorf("cannot use %q: it has just been changed to lead out of the allocation's directory", path)
	}
	return filepath.Join(p.allocDir, inside), nil
}

// resolve returns the absolute path that a job means, and the same path from the
// allocation's directory, which is empty for a path outside of it.
func (p hostPaths) resolve(path string) (absolute, inside string, err error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.taskDir, path)
	}
	path = filepath.Clean(path)
	inside, err = filepath.Rel(p.allocDir, path)
	switch {
	case err == nil && filepath.IsLocal(inside):
		return path, inside, nil
	case p.anywhere:
		return path, "", nil
	}
	return "", "", fmt.Errorf("volumes are not enabled; cannot mount host path %q: "+
		"use a path in the allocation's directory, or have the operator set volumes.enabled", path)
}

// read returns the content of a file that a job means, on the same terms but for links:
// inside the allocation's directory none is followed.
func (p hostPaths) read(path string, most int64) ([]byte, error) {
	path, inside, err := p.resolve(path)
	if err != nil {
		return nil, err
	}
	if inside == "" {
		return taskfile.ReadHost(path, most)
	}
	dir, err := taskfile.OpenDir(p.allocDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadFile(inside, most)
}

// nvidiaRequests is a directory in containers that the NVIDIA runtime may read as a
// list of GPUs to give: a mount of /dev/null at <directory>/<UUID> asks for that GPU.
const nvidiaRequests = "/nvidia-container-devices"

// checkTarget refuses targets that are not paths in a container, and those by which a job
// could ask the runtime for GPUs.
func checkTarget(target string) error {
	if !filepath.IsAbs(target) {
		return fmt.Errorf("target %q is not an absolute path", target)
	}
	clean := filepath.Clean("/" + target)
	for _, dir := range []string{"/var/run" + nvidiaRequests, "/run" + nvidiaRequests} {
		if strings.HasPrefix(clean, dir) {
			return fmt.Errorf("cannot mount at %q: GPUs are given by device blocks only", target)
		}
	}
	return nil
}
