// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"os"
	"path/filepath"

	"nomad-gpu-mem/internal/nvml"
)

// underWSL reports whether this is WSL, where the GPUs belong to the Windows host.
func underWSL(dev string) bool {
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(dev, name))
		return err == nil
	}
	return exists("dxg") && !exists("nvidiactl")
}

// hideProcesses removes NVML's processes. Under WSL their PIDs belong to another machine, and
// NVML does not report their use: only the total of a GPU counts.
func hideProcesses(s *nvml.Snapshot) {
	if s == nil {
		return
	}
	for i := range s.GPUs {
		s.GPUs[i].Processes = nil
	}
}
