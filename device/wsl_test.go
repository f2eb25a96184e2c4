// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// Under WSL the second memory call fails, events are refused, and processes have PIDs of
// another machine and report no memory. GPUs are offered and judged by their totals.
func TestTwoGPUsUnderWSL(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		noV2 := fakenvml.Faults{Fail: map[string]string{"nvmlDeviceGetMemoryInfo_v2": "UNKNOWN"}}
		shown := fakenvml.GPU{
			UUID: "GPU-shown", Name: "NVIDIA GeForce RTX 4070 Ti", PCIBusID: "00000000:01:00.0", MemoryMiB: 12282,
			Processes: map[int]int{28: fakenvml.NotAvailable}, More: map[string]string{"used": "6931", "display": "on"}, Faults: noV2,
		}
		other := fakenvml.GPU{
			UUID: "GPU-other", Name: "NVIDIA GeForce RTX 3090", PCIBusID: "00000000:02:00.0", MemoryMiB: 24576,
			More: map[string]string{"used": "420", "display": "off"}, Faults: noV2,
		}
		state := machine(shown, other)
		state.Fail = map[string]string{"nvmlEventSetCreate": "NOT_SUPPORTED"}
		m.Set(state)
		h := realNVML(t, m, quick())
		must.NoError(t, os.WriteFile(filepath.Join(h.plugin.dev, "dxg"), nil, 0o600))
		s := h.fingerprint()
		all := s.until(unhealthy(shown.UUID, "6-10")) // 6931 MiB less 1 GiB that idle GPUs use, of 11 units
		must.Len(t, 11, groupOf(all, shown.UUID).Devices)
		must.Len(t, 24, groupOf(all, other.UUID).Devices)
		must.SliceEmpty(t, unhealthyOf(groupOf(all, other.UUID)))

		// A process of this machine that happens to have that PID is not asked.
		h.seesAllProcesses()
		h.process(28, "0::/docker/"+container(1), nil)
		h.reads(2 * pollsUp)
		must.Eq(t, 6, h.inventory().offered[0].healthyUnits())
	})
}
