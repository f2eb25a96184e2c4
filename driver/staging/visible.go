package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
// see it. 0 is a process that is not known, and of one that cannot be looked at nothing is said.
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
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && !isShared(string(mounts), filepath.Dir(a.dir)) {
		return &hiddenError{a.dir, pid}
	}
	return err
}

// isShared reports whether the mount that has dir passes on what is mounted there. Its table is that of
// /proc/PID/mountinfo: the fifth field is where it is mounted, and optional fields lie between the sixth and a "-".
func isShared(mountinfo, dir string) (shared bool) {
	longest := -1
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 7 {
			continue
		}
		at := fields[4]
		inside, err := filepath.Rel(at, dir)
		if err != nil || !filepath.IsLocal(inside) || len(at) < longest {
			continue
		}
		longest, shared = len(at), false // a later mount at the same place covers the earlier one
		for _, field := range fields[6:] {
			if field == "-" {
				break
			}
			shared = shared || strings.HasPrefix(field, "shared:")
		}
	}
	return shared
}
