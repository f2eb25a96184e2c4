// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func machine(gpus ...fakenvml.GPU) fakenvml.State { return fakenvml.State{GPUs: gpus} }

func TestTwoGPUsOfDifferentSize(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		small, big := fakenvml.NewGPU(1, "GeForce GTX 960", 2002), fakenvml.NewGPU(2, "GeForce GTX 1080 Ti", 11175)
		m.Set(machine(small, big))
		h := realNVML(t, m, quick())

		all := h.fingerprint().until(groups(2))
		must.Eq(t, small.UUID, all[0].Name)
		must.Eq(t, "nvidia", all[0].Vendor)
		must.Eq(t, "gpu-mem", all[0].Type)
		must.Len(t, 1, all[0].Devices)
		must.Len(t, 10, all[1].Devices)
		must.Eq(t, &device.Device{
			ID: big.UUID + "::0009", Healthy: true, HwLocality: &device.DeviceLocality{PciBusID: "00000000:02:00.0"},
		}, all[1].Devices[9])
		must.Eq(t, 11175, intOf(all[1], "memory"))
		must.Eq(t, "MiB", all[1].Attributes["memory"].Unit)
	})
}

func TestNothingIsSentWhileNothingChanges(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(groups(1))

		// A value that changes with every reading does not change the offer.
		for _, temperature := range []string{"40", "50", "60"} {
			gpu.More["temperature"] = temperature
			m.Set(machine(gpu))
			h.reads(3)
		}
		gpu.More["power_limit"] = "200000"
		m.Set(machine(gpu))
		must.Eq(t, 200, intOf(s.next()[0], "power"))
	})
}

func TestGPUIsLostAndComesBack(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		m.Set(machine(one, two))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		before := s.until(groups(2))
		must.Eq(t, 24, intOf(before[1], "healthy_units"))

		two.Fail = map[string]string{"*": "GPU_IS_LOST"}
		m.Set(machine(one, two))
		lost := s.until(health(two.UUID, "GPU is lost"))
		must.Eq(t, before[0], lost[0], must.Sprint("the other GPU"))
		must.Len(t, 24, lost[1].Devices)
		must.Eq(t, 0, intOf(lost[1], "healthy_units"))

		// A task that was placed a moment ago still gets its booking.
		r, err := h.nomad.Reserve([]string{two.UUID + "::0003"})
		must.NoError(t, err)
		must.Eq(t, two.UUID, r.Envs["NVIDIA_VISIBLE_DEVICES"])

		m.Set(machine(one)) // even if NVML forgets it
		s.until(health(two.UUID, "no longer reports"))

		two.Fail = nil
		m.Set(machine(one, two))
		must.Eq(t, before, s.until(health(two.UUID, "")))
	})
}

func TestFirstResponseDoesNotWaitForHungNVML(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		hung := machine(fakenvml.NewGPU(1, "NVIDIA A30", 24576))
		hung.Hang = []string{"nvmlInit*"}
		m.Set(hung)
		config := quick()
		config.PollTimeout = "1h"
		h := realNVML(t, m, config)
		s := h.fingerprint()
		must.Len(t, 0, s.next())
		hung.Hang = nil
		m.Set(hung)
		s.until(groups(1))
	})
}

func TestMIGInstancesComeAndGo(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		parent, other := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		parent.MIGMode, other.MIGMode = "on", "off"
		m.Set(machine(parent, other))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		all := s.until(groups(1))
		must.Eq(t, other.UUID, all[0].Name)

		instance := fakenvml.NewMIG(1, "NVIDIA A30 MIG 2g.12gb", 11968)
		parent.MIG = []fakenvml.GPU{instance}
		m.Set(machine(parent, other))
		all = s.until(groups(2))
		mig := groupOf(all, instance.UUID)
		must.NotNil(t, mig)
		must.Len(t, 11, mig.Devices)
		must.Eq(t, "2g.12gb", *mig.Attributes["mig_profile"].String)
		must.Nil(t, groupOf(all, parent.UUID))

		parent.MIG = nil
		m.Set(machine(parent, other))
		s.until(groups(1))
	})
}
