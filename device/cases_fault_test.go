// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// watched waits until Xids of all these GPUs are heard: NVML keeps none for later, so one
// that comes while a listener starts is lost. It sends Xids of programs, which change
// nothing, until the plugin has noted one of each GPU. From then on every Xid counts.
func (h *harness) watched(m *fakenvml.Machine, gpus []fakenvml.GPU) {
	h.t.Helper()
	noted := map[string]bool{}
	for len(noted) < len(gpus) {
		for n := range gpus {
			gpus[n].Events = append(gpus[n].Events, "xid 13")
		}
		m.Set(machine(gpus...))
		for range 5 { // reads a file: a few events a look are enough
			h.reads(1)
			for _, xid := range h.inventory().xids {
				noted[xid.UUID] = true
			}
		}
	}
}

// failures is how many failures of a GPU count, which no later reading hides.
func failures(i inventory, uuid string) int {
	g, _ := i.find(allocator.GPUID(uuid))
	return g.record.failures
}

// Xids of programs are logged. Those of hardware take their GPU out of use. Each is
// sent once only, and none is lost.
func TestF10_Xids(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		hardware := []string{"48", "69", "79", "94", "119", "120"}
		var gpus []fakenvml.GPU
		for n := range 1 + len(hardware) {
			gpus = append(gpus, fakenvml.NewGPU(n+1, "NVIDIA A30", 24576))
		}
		config := quick()
		config.Probation = "1h"
		m.Set(machine(gpus...))
		h := realNVML(t, m, config)
		s := h.fingerprint()
		s.until(groups(len(gpus)))
		h.watched(m, gpus)

		victim := gpus[len(hardware)]
		for n, code := range hardware {
			gpus[len(hardware)].Events = append(gpus[len(hardware)].Events,
				"xid 13", "xid 31", "xid 43", "xid 45", "xid 68", "xid 109", "2 0")
			gpus[n].Events = append(gpus[n].Events, "xid "+code)
			m.Set(machine(gpus...))
			all := s.until(health(gpus[n].UUID, "Xid "+code+"; on probation"))
			must.Len(t, 24, unhealthyOf(groupOf(all, gpus[n].UUID)))
			for _, other := range gpus[n+1:] {
				must.True(t, health(other.UUID, "")(all), must.Sprint(other.UUID))
			}
		}
		must.Eq(t, 0, failures(h.inventory(), victim.UUID))
	})
}

// A GPU that reported an Xid is used again, with its claims, once it was healthy for a while.
func TestF10_BackAfterAnXid(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpus := []fakenvml.GPU{fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)}
		m.Set(machine(gpus...))
		h := realNVML(t, m, quick())
		h.fingerprint().until(groups(2))
		h.watched(m, gpus)
		before := h.inventory()

		for _, count := range []int{reported, 2 * reported} {
			gpus[0].Events = append(gpus[0].Events, "xid 79")
			m.Set(machine(gpus...))
			h.inventoryUntil(func(i inventory) bool { return failures(i, gpus[0].UUID) == count })
			h.inventoryUntil(func(i inventory) bool { return sameOffer(before, i) })
		}
		must.Eq(t, 0, failures(h.inventory(), gpus[1].UUID))
	})
}

func TestF10_XidsAreTheOperatorsChoice(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpus := []fakenvml.GPU{fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)}
		m.Set(machine(gpus...))
		config := quick()
		config.XidCritical = []int{68}
		config.Probation = "1h"
		h := realNVML(t, m, config)
		s := h.fingerprint()
		s.until(groups(2))
		h.watched(m, gpus)
		gpus[0].Events = append(gpus[0].Events, "xid 79")
		gpus[1].Events = append(gpus[1].Events, "xid 68")
		m.Set(machine(gpus...))
		all := s.until(health(gpus[1].UUID, "Xid 68; on probation: it must be healthy for 1h0m0s"))
		must.True(t, health(gpus[0].UUID, "")(all))
	})
}

// Where events are refused, GPUs are judged by polling.
func TestF10_NoEvents(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.Fail = map[string]string{"nvmlDeviceRegisterEvents": "NOT_SUPPORTED"}
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(groups(1))
		h.inventoryUntil(func(i inventory) bool { return i.xidsErr != nil })
		gpu.More["ecc_uncorrected"] = "2"
		m.Set(machine(gpu))
		s.until(health(gpu.UUID, "uncorrected memory errors"))
	})
}

// A GPU with hanging calls is unhealthy. The others are published, and Reserve
// and Stats do not wait for it.
func TestF15_CallsThatNeverReturn(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		stuck, well := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		config := quick()
		config.PollTimeout = "300ms"
		m.Set(machine(stuck, well))
		h := realNVML(t, m, config)
		s := h.fingerprint()
		s.until(groups(2))

		stuck.Hang = []string{"*"}
		m.Set(machine(stuck, well))
		s.until(func(all []*device.DeviceGroup) bool { // on a busy machine the other may seem to hang, too, for a moment
			return health(stuck.UUID, "does not return")(all) && health(well.UUID, "")(all)
		})
		for _, uuid := range []string{stuck.UUID, well.UUID} {
			_, err := h.nomad.Reserve([]string{uuid + "::0000"})
			must.NoError(t, err)
		}
		responses, err := h.nomad.Stats(h.ctx, minPeriod)
		must.NoError(t, err)
		t.Cleanup(func() { drain(h, responses) })
		must.Len(t, 2, (<-responses).Groups)
		h.reads(5)
		h.inventoryUntil(func(i inventory) bool { return i.offered[0].health != "" && i.offered[1].health == "" })

		stuck.Hang = nil
		m.Set(machine(stuck, well))
		s.until(health(stuck.UUID, ""))
	})
}

// Each further failure of a GPU prolongs its probation.
func TestGPUThatComesAndGoes(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		config := quick()
		config.Probation = "1h"
		m.Set(machine(gpu))
		h := realNVML(t, m, config)
		s := h.fingerprint()
		s.until(groups(1))
		lost := gpu
		lost.Fail = map[string]string{"*": "GPU_IS_LOST"}
		m.Set(machine(lost))
		s.until(health(gpu.UUID, "GPU is lost"))
		m.Set(machine(gpu))
		s.until(health(gpu.UUID, ""))
		m.Set(machine(lost))
		s.until(health(gpu.UUID, "GPU is lost"))
		m.Set(machine(gpu))
		s.until(health(gpu.UUID, "GPU is lost; on probation: it must be healthy for 1h0m0s"))
	})
}
