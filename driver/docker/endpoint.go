// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// IsLocal reports whether the engine at an endpoint certainly runs on this machine. A
// reboot of the machine ends all of its containers.
func IsLocal(endpoint string) bool {
	const socket = "unix://"
	return strings.HasPrefix(cmp.Or(endpoint, os.Getenv("DOCKER_HOST"), socket), socket)
}

// dockerSocket is where Docker listens by default.
const dockerSocket = "unix:///var/run/docker.sock"

// ListenerPID is the process that listens on the engine's socket: Docker, or systemd in its
// place. 0: it is not known, or in another PID namespace.
func ListenerPID(endpoint string) int {
	path, local := strings.CutPrefix(cmp.Or(endpoint, os.Getenv("DOCKER_HOST"), dockerSocket), "unix://")
	if !local {
		return 0
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	if err := raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	}); err != nil {
		return 0
	}
	return pid
}
