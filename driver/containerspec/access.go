// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/docker/docker/api/types/mount"

	"nomad-gpu-mem/driver/taskfile"
)

// Nomad, its log collector, Docker and this driver reach directories of an allocation by
// name, as root on the host: <alloc>/alloc/logs, <alloc>/alloc, each <alloc>/<task>, and
// local and secrets in it. Who can rename one of them and leave a link in its place makes
// them write to any file of the host. So no task gets to write to a directory that holds
// such a name; of <alloc>/alloc, which tasks share, the logs are covered by a read-only
// mount, which keeps their name in place.

var (
	errLogs  = errors.New("the allocation's logs cannot be written to by tasks: leave out rw, or have the operator set allow_writable_logs")
	errNames = errors.New("the source holds directories that Nomad reaches by name, so tasks cannot write to it: " +
		"to write, mount local, secrets, ../alloc or another task's local instead")
	errShared = errors.New("a shared propagation carries mounts out of the container: " +
		"use slave or private, or have the operator set allow_privileged or volumes.enabled")
)

// readOnly returns why a bind of source must be read-only, or nil.
func (b *builder) readOnly(source string) error {
	if b.Settings.AllowWritableLogs {
		return nil
	}
	alloc, source := leadsTo(b.Task.AllocDir), leadsTo(source)
	shared := filepath.Join(alloc, filepath.Base(b.Task.TaskDir().SharedAllocDir))
	switch {
	case below(source, alloc):
		return errNames
	case filepath.Dir(source) == alloc && source != shared:
		return errNames // a task's directory, also of one that Nomad has yet to make
	case below(leadsTo(b.Task.TaskDir().LogDir), source):
		return errLogs
	}
	return nil
}

// coverLogs lays the allocation's logs read-only over what a writable bind of source at
// target would show of them.
func (b *builder) coverLogs(source, target string) {
	logs := b.Task.TaskDir().LogDir
	inside, err := filepath.Rel(leadsTo(source), leadsTo(logs))
	if b.Settings.AllowWritableLogs || err != nil || !filepath.IsLocal(inside) {
		return
	}
	b.host.Binds = append(b.host.Binds, b.bind(logs, filepath.Join(target, inside), "ro"))
}

// checkPropagation knows what Docker takes. A shared mount would carry what is mounted
// below it in the container to the host, even by another mount of the same job.
func (b *builder) checkPropagation(propagation string) error {
	switch mount.Propagation(propagation) {
	case "", mount.PropagationPrivate, mount.PropagationRPrivate, mount.PropagationSlave, mount.PropagationRSlave:
		return nil
	case mount.PropagationShared, mount.PropagationRShared:
		if b.Settings.AllowPrivileged || b.Settings.Volumes.Enabled {
			return nil
		}
		return errShared
	}
	return fmt.Errorf("propagation %q is none of private, shared and slave, with or without an r before it", propagation)
}

// checkOwnDirs makes sure that the task has directories of its own, which tasks cannot
// have changed.
func (b *builder) checkOwnDirs() error {
	dirs := b.Task.TaskDir()
	own, err := filepath.Rel(b.Task.AllocDir, dirs.Dir)
	if err != nil || !filepath.IsLocal(own) || own == "." || below(dirs.SharedAllocDir, dirs.Dir) {
		return fmt.Errorf("the task's name, %q, gives it the directory %s, which is not its own: rename the task",
			b.Task.Name, dirs.Dir)
	}
	alloc, err := taskfile.OpenDir(b.Task.AllocDir)
	if err != nil {
		return fmt.Errorf("the allocation's directory: %w", err)
	}
	defer alloc.Close()
	for _, dir := range []string{dirs.LogDir, dirs.LocalDir, dirs.SecretsDir} {
		inside, err := filepath.Rel(b.Task.AllocDir, dir)
		if err == nil {
			err = alloc.Check(inside)
		}
		if err != nil {
			return fmt.Errorf("a directory of the task is not as Nomad made it: %w", err)
		}
	}
	return nil
}

// below reports whether a path is dir or lies in it.
func below(dir, path string) bool {
	inside, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(inside)
}

// leadsTo is the path without links, as far as it exists.
func leadsTo(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(leadsTo(dir), filepath.Base(path))
	}
	return path
}
