package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// procfs is the kernel's view of processes, at /proc.
type procfs string

// deserted reports whether the network namespace of a process is of no use to anybody:
// no other process is in it, and it has no interface but those that the kernel makes.
// Nomad puts others into the namespace of a group, and takes them out again when the
// group has ended.
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
		if device, _, isDevice := strings.Cut(strings.TrimSpace(line), ":"); isDevice && !isKernels(device) {
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

// isKernels reports whether the kernel makes an interface of that name in every network
// namespace: the loopback, and the tunnels of the modules that are loaded.
func isKernels(device string) bool {
	return slices.Contains([]string{
		"lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0",
	}, device)
}
