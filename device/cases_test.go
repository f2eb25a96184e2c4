// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// The tests in the files cases_*_test.go are problems that operators had with other
// programs, each with its number. They run the real
// NVML binding on a simulated machine.

// unhealthy waits until exactly these units of a GPU are unhealthy.
func unhealthy(uuid, units string) func([]*device.DeviceGroup) bool {
	return func(all []*device.DeviceGroup) bool {
		g := groupOf(all, uuid)
		return g != nil && unhealthyOf(g).String() == units
	}
}

func unhealthyOf(g *device.DeviceGroup) allocator.UnitSet {
	var units allocator.UnitSet
	for n, unit := range g.Devices {
		if !unit.Healthy {
			units = append(units, n)
		}
	}
	return units
}

func textOf(g *device.DeviceGroup, name string) string {
	if a := g.Attributes[name]; a != nil && a.String != nil {
		return *a.String
	}
	return ""
}

// A GPU that shares the host's memory reports no size: it is left out with a
// reason, and the others are offered. With memory_size it is offered.
func TestF1_NoMemorySize(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		unified, a6000 := fakenvml.NewGPU(1, "NVIDIA GB10", 0), fakenvml.NewGPU(2, "NVIDIA RTX A6000", 49140)
		unified.Fail = map[string]string{"nvmlDeviceGetBAR1MemoryInfo": "NOT_SUPPORTED", "nvmlDeviceGetMigMode": "NOT_SUPPORTED"}
		m.Set(machine(unified, a6000))
		h := realNVML(t, m, quick())
		all := h.fingerprint().until(groups(1))
		must.Eq(t, a6000.UUID, all[0].Name)
		must.Len(t, 47, all[0].Devices)
		table := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 2 })
		must.Eq(t, 0, table.GPUs[0].State.Units)
		must.StrContains(t, table.GPUs[0].State.Health, "set memory_size")
		h.end()

		config := quick()
		config.GPUs = map[string]GPUConfig{unified.UUID: {MemorySize: "96GiB"}}
		h = realNVML(t, m, config)
		all = h.fingerprint().until(groups(2))
		must.Len(t, 96, groupOf(all, unified.UUID).Devices)
		must.Eq(t, 98304, intOf(groupOf(all, unified.UUID), "memory"))
	})
}

// A GPU in MIG mode is never offered; its instances are, when there are some. A
// missing permission concerns one GPU only.
func TestF3_MIGWithoutInstances(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		parent, whole := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		parent.MIGMode, whole.MIGMode = "on", "off"
		m.Set(machine(parent, whole))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		must.Eq(t, whole.UUID, s.until(groups(1))[0].Name)

		parent.MIG = []fakenvml.GPU{
			fakenvml.NewMIG(1, "NVIDIA A30 MIG 2g.12gb", 11968),
			fakenvml.NewMIG(2, "NVIDIA A30 MIG 1g.6gb", 5952),
			fakenvml.NewMIG(3, "NVIDIA A30 MIG 1g.6gb", 5952),
		}
		m.Set(machine(parent, whole))
		all := s.until(groups(4))
		must.Nil(t, groupOf(all, parent.UUID))
		must.Eq(t, "2g.12gb", textOf(groupOf(all, parent.MIG[0].UUID), "mig_profile"))
		must.Eq(t, parent.UUID, textOf(groupOf(all, parent.MIG[2].UUID), "mig_parent"))
		must.Len(t, 5, groupOf(all, parent.MIG[2].UUID).Devices)

		parent.MIG[1].Fail = map[string]string{"nvmlDeviceGetMemoryInfo*": "NO_PERMISSION"}
		m.Set(machine(parent, whole))
		all = s.until(health(parent.MIG[1].UUID, "Insufficient Permissions"))
		for _, well := range []string{whole.UUID, parent.MIG[0].UUID, parent.MIG[2].UUID} {
			must.True(t, health(well, "")(all), must.Sprint(well))
		}
	})
}

// The parent of a MIG-backed vGPU looks usable and is not. What is sold is the
// instance, by the instance's size.
func TestF4_MIGBackedVirtualGPU(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		parent := fakenvml.NewGPU(1, "NVIDIA H100L-1-12C", 12288)
		parent.MIGMode = "on"
		parent.MIG = []fakenvml.GPU{fakenvml.NewMIG(1, "NVIDIA H100L-1-12C MIG 1g.12gb", 10564)}
		m.Set(machine(parent))
		h := realNVML(t, m, quick())
		all := h.fingerprint().until(groups(1))
		must.Eq(t, parent.MIG[0].UUID, all[0].Name)
		must.Len(t, 10, all[0].Devices)
		must.Eq(t, "NVIDIA H100L-1-12C MIG 1g.12gb", textOf(all[0], "model"))
		must.Eq(t, "1g.12gb", textOf(all[0], "mig_profile"))
		r, err := h.nomad.Reserve([]string{all[0].Devices[3].ID})
		must.NoError(t, err)
		must.Eq(t, parent.MIG[0].UUID, r.Envs["NVIDIA_VISIBLE_DEVICES"])
	})
}

// Each GPU has its own size, also where the names are the same.
func TestF5_MixedSizes(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		sizes := []uint64{2002, 11175, 12288, 16384, 46068, 15360, 12282, 16376, 10240, 20480}
		var gpus []fakenvml.GPU
		for n, mib := range sizes {
			gpus = append(gpus, fakenvml.NewGPU(n+1, "NVIDIA Card", mib))
		}
		m.Set(machine(gpus...))
		all := realNVML(t, m, quick()).fingerprint().until(groups(len(sizes)))
		for n, mib := range sizes {
			g := groupOf(all, gpus[n].UUID)
			must.Eq(t, int64(mib), intOf(g, "memory"))
			must.Len(t, int(mib/1024), g.Devices)
		}
	})
}

// A name is shown as it is, and is never part of an identity.
func TestF7_OddNames(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		names := []string{
			"NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
			"NVIDIA H100 NVL MIG 3g.47gb", "NVIDIA RTX A500 Embedded GPU", "Tesla V100-SXM2-16GB",
			"NVIDIA H100 80GB HBM3", "NVIDIA Thor", "TU102GL [Quadro RTX 6000/8000]", "Quadro RTX 6000/8000",
			"ARIEL_DEVICE_24_FUNCTION_3", "GeForce GTX 108...",
		}
		var gpus []fakenvml.GPU
		for n, name := range names {
			gpus = append(gpus, fakenvml.NewGPU(n+1, name, 8192))
		}
		m.Set(machine(gpus...))
		h := realNVML(t, m, quick())
		all := h.fingerprint().until(groups(len(names)))
		for n, name := range names {
			g := groupOf(all, gpus[n].UUID)
			must.Eq(t, name, textOf(g, "model"))
			must.Eq(t, gpus[n].UUID+"::0000", g.Devices[0].ID)
		}
		for _, g := range h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == len(names) }).GPUs {
			must.Eq(t, names[g.State.Index], g.State.Model)
		}
	})
}

// A GPU that fell off the bus takes no other with it, and keeps its claims.
func TestF8_OneOfFourIsLost(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		var gpus []fakenvml.GPU
		for n := range 4 {
			gpus = append(gpus, fakenvml.NewGPU(n+1, "NVIDIA A30", 24576))
		}
		m.Set(machine(gpus...))
		h := realNVML(t, m, quick())
		h.claim(gpus[3].UUID, 24, "c", 0, 1)
		s := h.fingerprint()
		before := s.until(groups(4))

		gpus[3].Fail = map[string]string{"nvmlDeviceGetHandleByIndex_v2": "GPU_IS_LOST"}
		m.Set(machine(gpus...))
		all := s.until(health(gpus[3].UUID, "GPU is lost"))
		must.Eq(t, before[:3], all[:3])
		for _, g := range gpus[:3] {
			_, err := h.nomad.Reserve([]string{g.UUID + "::0003"})
			must.NoError(t, err)
		}
		table := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 4 && s.GPUs[3].State.Health != "" })
		must.Eq(t, 0, table.GPUs[2].State.Unhealthy.Len())
		must.Len(t, 1, table.GPUs[3].Claims())
	})
}

// Errors at the start count as those that come later: no restart of the plugin
// clears a GPU's fault.
func TestF12_MemoryErrorsAtTheStart(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		well, broken := fakenvml.NewGPU(1, "Tesla V100", 16384), fakenvml.NewGPU(2, "Tesla V100", 16384)
		broken.More["ecc_uncorrected"] = "1"
		m.Set(machine(well, broken))
		for range 2 {
			h := realNVML(t, m, quick())
			all := h.fingerprint().until(groups(2))
			must.True(t, health(well.UUID, "")(all))
			must.True(t, health(broken.UUID, "uncorrected memory errors")(all))
			h.end()
		}
		broken.More["remapped_rows"] = "well" // it contains errors
		page := fakenvml.NewGPU(3, "Tesla P100", 16384)
		page.More["retired_pages_pending"] = "on"
		row := fakenvml.NewGPU(4, "NVIDIA A100", 40960)
		row.More["remapped_rows"] = "failed"
		m.Set(machine(broken, page, row))
		all := realNVML(t, m, quick()).fingerprint().until(groups(3))
		must.True(t, health(broken.UUID, "")(all))
		must.True(t, health(page.UUID, "waits to be retired")(all))
		must.True(t, health(row.UUID, "could not be replaced")(all))
	})
}

// A library, a driver and GPUs that come one after the other are found when
// they are there.
func TestF13_DriverComesLate(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		library := m.Library
		m.Library = filepath.Join(t.TempDir(), fakenvml.Library)
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		must.Len(t, 0, s.next())
		h.faultUntil("No such file or directory")

		must.NoError(t, os.Symlink(library, m.Library))
		h.faultUntil("Driver Not Loaded")
		mismatch := machine()
		mismatch.Fail = map[string]string{"nvmlInit_v2": "LIB_RM_VERSION_MISMATCH"}
		m.Set(mismatch)
		h.faultUntil("Driver/library version mismatch")
		m.Set(machine())
		h.faultUntil("")
		m.Set(machine(fakenvml.NewGPU(1, "NVIDIA GeForce RTX 3060", 12288)))
		must.Len(t, 1, s.next(), must.Sprint("nothing was sent in between"))
	})
}

// A driver that was replaced under the plugin: the GPUs stay offered and are
// unhealthy, with NVML's words, until driver and library agree.
func TestF13_DriverIsReplaced(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		well := machine(fakenvml.NewGPU(1, "NVIDIA A30", 24576))
		m.Set(well)
		s := realNVML(t, m, quick()).fingerprint()
		before := s.until(groups(1))
		mismatch := well
		mismatch.Fail = map[string]string{"nvmlDeviceGetCount_v2": "UNINITIALIZED", "nvmlInit_v2": "LIB_RM_VERSION_MISMATCH"}
		m.Set(mismatch)
		s.until(health(before[0].Name, "version mismatch"))
		m.Set(well)
		must.Eq(t, before, s.until(health(before[0].Name, "")))
	})
}

// The GPU is its UUID. A GPU that went leaves its units, unhealthy; one that
// moves up or comes into its slot is not taken for it.
func TestF19_UUIDAndIndex(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(0x1A, "NVIDIA A30", 24576), fakenvml.NewGPU(0x3D, "NVIDIA A30", 24576)
		m.Set(machine(one, two))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		before := s.until(groups(2))

		m.Set(machine(two)) // which moves to index 0
		all := s.until(health(one.UUID, "no longer reports"))
		must.Eq(t, before[1].Devices, groupOf(all, two.UUID).Devices)
		must.True(t, health(two.UUID, "")(all))

		swapped := one
		swapped.UUID = "GPU-00000069-0000-4000-8000-000000000000"
		m.Set(machine(swapped, two))
		all = s.until(groups(3))
		must.True(t, health(swapped.UUID, "")(all))
		must.True(t, health(one.UUID, "no longer reports")(all))
		must.Eq(t, before[1].Devices, groupOf(all, two.UUID).Devices)

		_, err := h.nomad.Reserve([]string{"GPU-99::0000"})
		must.ErrorContains(t, err, "GPU-99: this node does not offer the GPU")
	})
}

// One session with the driver serves all polls: a new one could take seconds.
func TestF20_OneSession(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.More["persistence_mode"] = "off"
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(groups(1))
		closed := machine(gpu)
		closed.Fail = map[string]string{"nvmlInit*": "UNKNOWN"} // a second one would fail
		m.Set(closed)
		h.reads(10)
		must.NoError(t, h.inventory().fault)
		must.Eq(t, "", h.inventory().offered[0].health)
	})
}

// What NVML calls the first GPU and what CUDA does are two things: a task gets
// a UUID, whatever the order.
func TestF41_IndexOrder(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		slow, fast := fakenvml.NewGPU(1, "NVIDIA GeForce GTX 1660 SUPER", 6144), fakenvml.NewGPU(2, "NVIDIA GeForce RTX 3090", 24576)
		m.Set(machine(slow, fast))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		before := s.until(groups(2))
		m.Set(machine(fast, slow))
		all := s.until(func(all []*device.DeviceGroup) bool { return intOf(groupOf(all, slow.UUID), "index") == 1 })
		for n := range before {
			must.Eq(t, before[n].Name, all[n].Name)
			must.Eq(t, before[n].Devices, all[n].Devices)
		}
		r, err := h.nomad.Reserve([]string{fast.UUID + "::0020"})
		must.NoError(t, err)
		must.Eq(t, fast.UUID, r.Envs["NVIDIA_VISIBLE_DEVICES"])
		for key, value := range r.Envs {
			must.False(t, strings.HasPrefix(key, "CUDA_"), must.Sprintf("%s=%s", key, value))
		}
	})
}

// Units so small that Nomad could not carry them are refused with one that
// is large enough, per GPU and for the node.
func TestF43_TooManyUnits(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		m.Set(machine(fakenvml.NewGPU(1, "NVIDIA H100", 81920), fakenvml.NewGPU(2, "NVIDIA T400", 2048)))
		config := quick()
		config.MemoryUnit = "1MiB"
		h := realNVML(t, m, config)
		all := h.fingerprint().until(groups(1))
		must.Len(t, 2048, all[0].Devices)
		table := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 2 })
		must.StrContains(t, table.GPUs[0].State.Health, `memory_unit = "1MiB" makes 81920 units of this GPU, at most 4096 are allowed; set at least 32MiB`)
		h.end()

		var gpus []fakenvml.GPU
		for n := range 6 {
			gpus = append(gpus, fakenvml.NewGPU(n+1, "NVIDIA H200", 143771))
		}
		m.Set(machine(gpus...))
		config.MemoryUnit = "36MiB"
		h = realNVML(t, m, config)
		must.Len(t, 4, h.fingerprint().until(groups(4)), must.Sprint(fmt.Sprintf("%d units at most", maxNodeUnits)))
	})
}
