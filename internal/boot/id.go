// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package boot identifies a machine's current boot: both plugins check whether a record was
// written on this machine since its last boot.
package boot

import (
	"os"
	"strings"
)

// bootIDFile has the kernel's boot ID, which changes with each boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// ID returns the kernel's boot ID; empty if the kernel has none.
func ID() string {
	id, _ := os.ReadFile(bootIDFile)
	return strings.TrimSpace(string(id))
}
