// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package boot tells machines, and the boots of one, apart: both plugins need to know whether
// a record was written on this machine, and since its last boot.
package boot

import (
	"os"
	"strings"
)

// bootIDFile is where the kernel gives an ID that changes with each boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// ID identifies this machine since its last boot; empty where the kernel gives none.
func ID() string {
	id, _ := os.ReadFile(bootIDFile)
	return strings.TrimSpace(string(id))
}
