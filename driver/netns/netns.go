// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package netns looks at the network namespaces of processes, to find the networks of groups that no longer exist.
package netns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Procfs is the kernel's view of processes, at /proc.
type Procfs string

// Deserted reports whether the network namespace of a pause container, whose first
// process is pid, is unused: nothing of another container is in it, and it
// has no interface but those that the kernel makes. Nomad puts others into the namespace
// of a group, and takes them out again when the group has ended.
func (p Procfs) Deserted(pid int) (bool, error) {
	network, err := p.namespace(pid, "net")
	if err != nil {
		return false, err
	}
	own, err := p.namespace(pid, "pid")
	if err != nil {
		return false, err
	}
	if furnished, err := p.furnished(pid); err != nil || furnished {
		return false, err
	}
	processes, err := os.ReadDir(string(p))
	if err != nil {
		return false, err
	}
	for _, process := range processes {
		other, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		shares, err := p.namespace(other, "net")
		if err == nil && shares == network {
			var container string
			if container, err = p.namespace(other, "pid"); err == nil && container != own {
				return false, nil
			}
		}
		if err != nil && !isForeign(err) {
			return false, err
		}
	}
	return true, nil
}

// isForeign reports whether a process that cannot be inspected does not count: it has
// ended meanwhile, or not even root may inspect it, so no container has it.
func isForeign(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, fs.ErrPermission)
}

func (p Procfs) namespace(pid int, kind string) (string, error) {
	return os.Readlink(filepath.Join(string(p), strconv.Itoa(pid), "ns", kind))
}

// furnished reports whether a process sees an interface that the kernel did not make.
func (p Procfs) furnished(pid int) (bool, error) {
	devices, err := os.ReadFile(filepath.Join(string(p), strconv.Itoa(pid), "net/dev"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(devices)) {
		if device, _, isDevice := strings.Cut(strings.TrimSpace(line), ":"); isDevice && !isKernels(device) {
			return true, nil
		}
	}
	return false, nil
}

// isKernels reports whether the kernel makes an interface of that name in every network
// namespace: the loopback, and the tunnels of the modules that are loaded.
func isKernels(device string) bool {
	return slices.Contains([]string{
		"lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0",
	}, device)
}
