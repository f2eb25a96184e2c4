package driver

import (
	"cmp"
	"os"
	"strings"
)

// bootIDFile is where the kernel tells an ID that is new with each boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bootID identifies this boot of the machine; empty where that is not known. No container
// of an engine on this machine outlives it.
func bootID() string {
	id, _ := os.ReadFile(bootIDFile)
	return strings.TrimSpace(string(id))
}

// isLocal reports whether an endpoint leads to an engine on this machine for certain.
func isLocal(endpoint string) bool {
	const socket = "unix://"
	return strings.HasPrefix(cmp.Or(endpoint, os.Getenv("DOCKER_HOST"), socket), socket)
}
