package device

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// untilDoing is until, and does something from time to time meanwhile.
func (s *stream) untilDoing(do func(), so func([]*device.DeviceGroup) bool) []*device.DeviceGroup {
	s.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case r, open := <-s.responses:
			must.True(s.t, open)
			must.NoError(s.t, r.Error)
			if so(r.Devices) {
				return r.Devices
			}
		case <-again.C:
			do()
		case <-s.ctx.Done():
			s.t.Fatal("never so")
		}
	}
}

// Xids of programs are logged. Those of hardware take their GPU out of use, and
// it comes back when it was well for a while. The operator decides which are
// which.
func TestF10_Xids(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		victim, broken := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		m.Set(machine(victim, broken))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		before := s.until(groups(2))

		for _, hardware := range []string{"48", "69", "79", "94", "119", "120"} {
			programs := []string{"xid 13", "xid 31", "xid 43", "xid 45", "xid 68", "xid 109", "2 0"}
			victim.Events = append(victim.Events, programs...)
			// An event is lost while nobody waits for it, as at the start.
			all := s.untilDoing(func() {
				broken.Events = append(broken.Events, "xid "+hardware)
				m.Set(machine(victim, broken))
			}, func(all []*device.DeviceGroup) bool {
				must.True(t, health(victim.UUID, "")(all))
				return health(broken.UUID, "Xid "+hardware+"; on probation")(all)
			})
			must.Len(t, 24, unhealthyOf(groupOf(all, broken.UUID)))
			must.Eq(t, before, s.until(health(broken.UUID, "")))
		}
	})
}

func TestF10_XidsAreTheOperatorsChoice(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		m.Set(machine(one, two))
		config := quick()
		config.XidCritical = []int{68}
		config.Probation = "1h"
		h := realNVML(t, m, config)
		s := h.fingerprint()
		s.until(groups(2))
		s.untilDoing(func() {
			one.Events = append(one.Events, "xid 79")
			two.Events = append(two.Events, "xid 68")
			m.Set(machine(one, two))
		}, func(all []*device.DeviceGroup) bool {
			must.True(t, health(one.UUID, "")(all))
			return health(two.UUID, "Xid 68; on probation: it must be well for 1h0m0s")(all)
		})
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

// A GPU whose calls hang is unhealthy. The others are published, and Reserve
// and Stats do not wait for it.
func TestF15_CallsThatNeverReturn(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		stuck, well := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		m.Set(machine(stuck, well))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(groups(2))

		stuck.Hang = []string{"*"}
		m.Set(machine(stuck, well))
		all := s.until(health(stuck.UUID, "does not return"))
		must.True(t, health(well.UUID, "")(all))
		for _, uuid := range []string{stuck.UUID, well.UUID} {
			_, err := h.nomad.Reserve([]string{uuid + "::0000"})
			must.NoError(t, err)
		}
		responses, err := h.nomad.Stats(h.ctx, minPeriod)
		must.NoError(t, err)
		t.Cleanup(func() { drain(h, responses) })
		must.Len(t, 2, (<-responses).Groups)
		h.reads(5)
		must.Eq(t, "", h.inventory().offered[1].health)

		stuck.Hang = nil
		m.Set(machine(stuck, well))
		s.until(health(stuck.UUID, ""))
	})
}

// A GPU that fails time and again has to prove itself for longer each time.
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
		s.until(health(gpu.UUID, "GPU is lost; on probation: it must be well for 1h0m0s"))
	})
}
