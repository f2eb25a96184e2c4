package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procfs is the kernel's view of processes, at /proc.
type procfs string

// deserted reports whether the network namespace of a process is of no use to anybody:
// no other process is in it, and it has none of the interfaces that Nomad puts into the
// namespace of a group and takes out again when the group has ended. Nomad names them
// eth0 and so on.
func (p procfs) deserted(pid int) (bool, error) {
	dir := filepath.Join(string(p), strconv.Itoa(pid))
	own, err := os.Readlink(filepath.Join(dir, "ns/net"))
	if err != nil {
		return false, err
	}
	devices, err := os.ReadFile(filepath.Join(dir, "net/dev"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(devices)) {
		if strings.HasPrefix(strings.TrimSpace(line), "eth") {
			return false, nil
		}
	}
	processes, err := os.ReadDir(string(p))
	if err != nil {
		return false, err
	}
	for _, process := range processes {
		if other, err := strconv.Atoi(process.Name()); err != nil || other == pid {
			continue
		}
		switch theirs, err := os.Readlink(filepath.Join(string(p), process.Name(), "ns/net")); {
		case errors.Is(err, fs.ErrNotExist): // it has ended meanwhile
		case err != nil:
			return false, err
		case theirs == own:
			return false, nil
		}
	}
	return true, nil
}
