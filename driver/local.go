// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"cmp"
	"os"
	"strings"
)

// isLocal reports whether an endpoint leads to an engine on this machine for certain.
// No container of such an engine outlives the machine's boot.
func isLocal(endpoint string) bool {
	const socket = "unix://"
	return strings.HasPrefix(cmp.Or(endpoint, os.Getenv("DOCKER_HOST"), socket), socket)
}
