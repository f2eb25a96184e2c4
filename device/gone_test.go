// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// Where the plugin sees all processes, the memory of one that does not exist, or of a
// zombie outside all containers, belongs to no task and must not be sold.
func TestMemoryOfProcessesThatAreGoneIsWithheld(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.Processes = map[int]int{100: 3000, 200: 3000} // beyond 1 GiB: 4976 MiB, 5 units
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		h.process(200, "0::/user.slice/session-1.scope", nil)
		h.state(200, "Z", 1)
		s := h.fingerprint()
		s.until(groups(1))
		s.until(unhealthy(gpu.UUID, "22-23")) // the memory of 100 may be a task's that cannot be seen

		h.seesAllProcesses()
		s.until(unhealthy(gpu.UUID, "19-23"))
	})
}

// A zombie in a container belongs to the container, and one with living threads is a process
// like others. An ID can be used again.
func TestProcessesThatOnlyLookGone(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.Processes = map[int]int{100: 6000, 200: 2000}
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		h.seesAllProcesses()
		h.claim(gpu.UUID, 24, container(1), 0, 1, 2, 3, 4, 5)
		h.claim(gpu.UUID, 24, container(2), 6, 7)
		h.process(100, "0::/docker/"+container(1), nil)
		h.state(100, "Z", 1)
		s := h.fingerprint()
		s.until(groups(1))
		h.inventoryUntil(func(i inventory) bool { return i.offered[0].unmanagedMiB == 2000-1024 }) // 200 does not exist

		h.process(200, "0::/docker/"+container(2), nil)
		h.state(200, "Z", 4)
		h.inventoryUntil(func(i inventory) bool { return i.offered[0].unmanagedMiB == 0 })
		must.Eq(t, 6000, h.inventory().offered[0].slices[0].usedMiB)
		must.Eq(t, 2000, h.inventory().offered[0].slices[1].usedMiB)
	})
}
