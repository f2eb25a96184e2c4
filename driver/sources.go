// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/mount"

	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/staging"
	"nomad-gpu-mem/driver/taskfile"
)

// mostStaged bounds what a task adds to the host's own mounts, of which the kernel allows
// 100000 for all.
const mostStaged = 500

// stageSources replaces the sources in the allocation's directory by mounts of what has
// those names now. Docker looks a path up when the container starts, and another task of
// the group may have put a link in its place by then.
func (s *start) stageSources(spec *docker.Spec) error {
	if !s.services.settings.StagesSources() {
		return nil
	}
	alloc, err := taskfile.OpenDir(s.task.AllocDir)
	if err != nil {
		return fmt.Errorf("the allocation's directory: %w", err)
	}
	defer alloc.Close()
	staged := map[string]string{} // staged paths, by source
	stage := func(source string, hold func(string) (taskfile.Held, error)) (string, error) {
		if path, done := staged[source]; done {
			return path, nil
		}
		inside, changeable := s.changeable(source)
		covers, err := s.covers(source, alloc)
		if err != nil {
			return "", fmt.Errorf("cannot stage the alloc directory: %w", err)
		}
		defer release(covers)
		if !changeable && len(covers) == 0 {
			return source, nil
		}
		if len(staged) == mostStaged {
			return "", fmt.Errorf("the task mounts more than %d paths of the allocation's directory: mount directories above them", mostStaged)
		}
		held, err := hold(inside)
		if err != nil {
			return "", fmt.Errorf("cannot mount %q into the container: %w", source, err)
		}
		defer held.Close()
		path, err := s.services.staging.Stage(s.task.ID, len(staged), held, covers...)
		if err != nil {
			return "", fmt.Errorf("cannot mount %q into the container: %w; or have the operator set volumes.stage_sources = false", source, err)
		}
		staged[source] = path
		return path, nil
	}
	host := *spec.Host
	host.Binds, host.Mounts = slices.Clone(host.Binds), slices.Clone(host.Mounts)
	for i, bind := range host.Binds {
		source, rest, _ := strings.Cut(bind, ":")
		if source, err = stage(source, alloc.HoldOrMake); err != nil { // as Docker makes the source of a bind
			return err
		}
		host.Binds[i] = source + ":" + rest
	}
	for i, m := range host.Mounts {
		if m.Type != mount.TypeBind {
			continue
		}
		if host.Mounts[i].Source, err = stage(m.Source, alloc.Hold); err != nil {
			return err
		}
	}
	spec.Host = &host
	return nil
}

// unstage removes the mounts that the container has by now: while they are there, Nomad
// could not remove the allocation's directory, as it does also before a container is gone.
func (s *start) unstage() {
	if err := s.services.staging.Remove(s.task.ID); err != nil {
		s.services.logger.Warn("a task's staged sources stay mounted until it ends", "task_id", s.task.ID, "error", err)
	}
}

// covers are the directories in the alloc directory, if that is the source. Tasks can write to all but the logs.
// Docker's read-only mount of the logs is not enough: Docker looks up each target when it mounts it, and links in the
// image, or another mount, can redirect it. A process in another mount namespace does not have that mount: if a task
// passes it an open alloc directory that is writable, the process can rename the logs. So that directory is read-only.
//
// Docker fails to label read-only mounts. So with an SELinux label there are no covers.
func (s *start) covers(source string, alloc *taskfile.Dir) (covers []staging.Cover, err error) {
	dirs, settings := s.task.TaskDir(), s.services.settings
	if source != dirs.SharedAllocDir || settings.AllowWritableLogs || settings.Volumes.SelinuxLabel != "" {
		return nil, nil
	}
	defer func() {
		if err != nil {
			release(covers)
			covers = nil
		}
	}()
	shared, err := filepath.Rel(s.task.AllocDir, source)
	if err != nil {
		return nil, err
	}
	logs, err := alloc.HoldOrMake(filepath.Join(shared, filepath.Base(dirs.LogDir)))
	if err != nil {
		return nil, err
	}
	covers = append(covers, staging.Cover{Name: filepath.Base(dirs.LogDir), Held: logs})
	names, err := alloc.Dirs(shared)
	if err != nil {
		return covers, err
	}
	if len(names) > mostStaged {
		return covers, fmt.Errorf("there are more than %d directories in %s: put them in one", mostStaged, source)
	}
	for _, name := range names {
		if name == filepath.Base(dirs.LogDir) {
			continue
		}
		held, err := alloc.Hold(filepath.Join(shared, name))
		if err != nil {
			return covers, err
		}
		covers = append(covers, staging.Cover{Name: name, Held: held, Writable: true})
	}
	return covers, nil
}

func release(covers []staging.Cover) {
	for _, cover := range covers {
		cover.Held.Close()
	}
}

// changeable returns a source as a path inside the allocation's directory, if a task
// could put something else in its place. Nomad's own directories have names that no task
// can change: all that a task may write to has the logs covered.
func (s *start) changeable(source string) (inside string, changeable bool) {
	dirs := s.task.TaskDir()
	inside, err := filepath.Rel(s.task.AllocDir, source)
	if err != nil || !filepath.IsAbs(source) || !filepath.IsLocal(inside) {
		return "", false
	}
	return inside, !slices.Contains([]string{dirs.SharedAllocDir, dirs.LocalDir, dirs.SecretsDir, dirs.LogDir}, source)
}
