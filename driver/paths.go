package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// hostPaths decides which paths of the host a job may use as sources.
type hostPaths struct {
	allocDir string // everything under it belongs to the allocation
	taskDir  string // what relative paths start from
	anywhere bool   // volumes.enabled
}

func (b *blueprint) paths() hostPaths {
	return hostPaths{
		allocDir: b.task.AllocDir,
		taskDir:  b.task.TaskDir().Dir,
		anywhere: b.settings.Volumes.Enabled,
	}
}

// source returns the absolute path that a job means, if the job may use it. Inside
// the allocation's directory a link must not lead out of it: the task could have
// made the link itself in an earlier run.
//
// Docker resolves the path once more, by name, when it starts the container. Another
// task of the same group that runs meanwhile, and has the directory mounted, may put a
// link there in between; no name that Docker would take stands for what was checked.
// Who must keep such jobs out can only forbid groups of several tasks.
func (p hostPaths) source(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.taskDir, path)
	}
	path = filepath.Clean(path)
	inside, err := filepath.Rel(p.allocDir, path)
	if err != nil || !filepath.IsLocal(inside) {
		if p.anywhere {
			return path, nil
		}
		return "", fmt.Errorf("volumes are not enabled; cannot mount host path %q: "+
			"use a path in the allocation's directory, or have the operator set volumes.enabled", path)
	}
	if err := staysInside(p.allocDir, inside); err != nil {
		return "", fmt.Errorf("cannot use %q: %w", path, err)
	}
	return path, nil
}

// read returns the content of a file that a job means, on the same terms. Inside the
// allocation's directory it is opened such that no link leads out of it meanwhile.
func (p hostPaths) read(path string) ([]byte, error) {
	path, err := p.source(path)
	if err != nil {
		return nil, err
	}
	inside, err := filepath.Rel(p.allocDir, path)
	if err != nil || !filepath.IsLocal(inside) {
		return os.ReadFile(path)
	}
	root, err := os.OpenRoot(p.allocDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(inside)
}

// staysInside follows the longest existing part of path below dir. What does not
// exist yet cannot lead anywhere.
func staysInside(dir, path string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		_, err := root.Stat(path)
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("it leaves the allocation's directory or cannot be followed: %w", err)
		}
		if _, err := root.Lstat(path); err == nil {
			return fmt.Errorf("%s is a link to something that does not exist", path)
		}
		if path == "." {
			return nil
		}
		path = filepath.Dir(path)
	}
}

// nvidiaRequests is a directory in containers that the NVIDIA runtime may read as a
// list of GPUs to give: a mount of /dev/null at <directory>/<UUID> asks for that GPU.
const nvidiaRequests = "/nvidia-container-devices"

// checkTarget refuses targets that are no place in a container, and those by which a job
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
