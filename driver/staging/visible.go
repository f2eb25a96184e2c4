// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package staging

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hiddenError says that a process does not see what is mounted in the area.
type hiddenError struct {
	dir string
	pid int
}

func (e *hiddenError) Error() string {
	return fmt.Sprintf("process %d does not see what is mounted in %s: they have mount namespaces of their own, and that mount is not shared; "+
		"remove what separates them, such as PrivateTmp or ProtectSystem in the agent's systemd unit", e.pid, e.dir)
}

// Check prepares the area, and fails if that is not possible or if the process, which is the container engine, does not
// see it. 0 is an unknown process; neither it nor one that cannot be inspected is an error.
func (a *Area) Check(pid int) error {
	if err := a.prepare(); err != nil {
		return fmt.Errorf("cannot prepare %s: %w", a.dir, err)
	}
	if pid == 0 {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil //nolint:nilerr // nothing is known
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil || own == other {
		return nil //nolint:nilerr // nothing is known
	}
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil //nolint:nilerr // nothing is known
	}
	ours, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at unix.Stat_t
	if err := unix.Stat(a.dir, &at); err != nil {
		return err
	}
	if !follows(string(theirs), string(ours), fmt.Sprintf("%d:%d", unix.Major(at.Dev), unix.Minor(at.Dev))) {
		return &hiddenError{a.dir, pid}
	}
	return nil
}

// follows reports whether what is mounted in a file system by those who have the table ours appears for those who have the
// table theirs. To have the file system is not enough: a copy of its mount that is private stays as it was.
func follows(theirs, ours, device string) bool {
	passed, received := false, map[string]bool{}
	own := propagation(ours, device)
	for _, field := range own {
		kind, group, _ := strings.Cut(field, ":")
		passed = passed || kind == "shared"
		received[group] = received[group] || kind == "master"
	}
	return passed && slices.ContainsFunc(propagation(theirs, device), func(field string) bool {
		kind, group, _ := strings.Cut(field, ":")
		// They are of our peer group, or follow it, or follow one that does. A group that we follow gets nothing from us.
		return kind == "shared" && slices.Contains(own, field) || kind == "master" && !received[group]
	})
}

// propagation returns the optional fields of the mounts of a file system, which say where its mounts are passed on to and
// come from. The table is that of /proc/PID/mountinfo: the third field is the file system's device, and the optional ones lie
// between the sixth and a "-".
func propagation(mountinfo, device string) (found []string) {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 || fields[2] != device {
			continue
		}
		if end := slices.Index(fields[6:], "-"); end > 0 {
			found = append(found, fields[6:6+end]...)
		}
	}
	return found
}
