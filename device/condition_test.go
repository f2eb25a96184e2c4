// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// computeInstance is a MIG device: one compute instance of a GPU instance.
func computeInstance(number int, name, gpuInstance, computeInstance string) fakenvml.GPU {
	instance := fakenvml.NewMIG(number, "NVIDIA A100-SXM4-80GB MIG "+name, 40192)
	instance.ReservedMiB = 64
	instance.More = map[string]string{"gpu_instance": gpuInstance, "compute_instance": computeInstance}
	return instance
}

// Memory belongs to a MIG GPU instance. NVML reports all of it for each compute instance.
func TestMemoryOfAGPUInstanceIsSoldOnce(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		a100 := fakenvml.NewGPU(1, "NVIDIA A100-SXM4-80GB", 81920)
		a100.MIGMode = "on"
		whole, first := computeInstance(1, "3g.40gb", "2", "0"), computeInstance(2, "1c.3g.40gb", "1", "0")
		a100.MIG = []fakenvml.GPU{whole, first}
		m.Set(machine(a100))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		for _, group := range s.until(groups(2)) {
			must.Len(t, 39, group.Devices)
		}

		// A second compute instance of the same GPU instance: neither is sold. Tasks may hold
		// units of the one that was there before.
		second := computeInstance(3, "1c.3g.40gb", "1", "1")
		a100.MIG = []fakenvml.GPU{whole, first, second}
		m.Set(machine(a100))
		all := s.until(health(first.UUID, "shares the memory of MIG GPU instance 1"))
		must.Len(t, 2, all)
		must.SliceEmpty(t, unhealthyOf(groupOf(all, whole.UUID)))
		table := h.tableUntil(func(s *allocator.Snapshot) bool { return len(s.GPUs) == 4 })
		for _, gpu := range table.GPUs {
			if string(gpu.ID) == second.UUID {
				must.Eq(t, 0, gpu.State.Units)
				must.StrContains(t, gpu.State.Health, "make one compute instance of each GPU instance")
			}
		}

		a100.MIG = []fakenvml.GPU{whole, first}
		m.Set(machine(a100))
		s.until(health(first.UUID, ""))
	})
}

// A sibling that cannot be read is still a sibling.
func TestMemoryIsNotSoldBesideASiblingThatFails(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		a100 := fakenvml.NewGPU(1, "NVIDIA A100-SXM4-80GB", 81920)
		a100.MIGMode = "on"
		first, second := computeInstance(2, "1c.3g.40gb", "1", "0"), computeInstance(3, "1c.3g.40gb", "1", "1")
		second.Fail = map[string]string{"nvmlDeviceGetMemoryInfo*": "NO_PERMISSION"}
		a100.MIG = []fakenvml.GPU{first, second}
		m.Set(machine(a100))
		h := realNVML(t, m, quick())
		must.Len(t, 0, h.fingerprint().next())
		h.inventoryUntil(func(i inventory) bool { return len(i.refused) == 3 })
	})
}

// pciDevice makes the kernel know a device's memory node.
func pciDevice(t *testing.T, sysfs, address, node string) {
	t.Helper()
	dir := filepath.Join(sysfs, "bus/pci/devices", address)
	must.NoError(t, os.MkdirAll(dir, 0o755))
	must.NoError(t, os.WriteFile(filepath.Join(dir, "numa_node"), []byte(node+"\n"), 0o600))
}

// A job near socket 0 needs the host's node that the GPU's PCI device is on, not the
// node that a Grace GPU's own memory is. Most GPUs have no such node.
func TestNUMANodeIsThatOfThePCIDevice(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := func(number int, busID, ownNode, affinity string) fakenvml.GPU {
			g := fakenvml.NewGPU(number, "NVIDIA GB200", 189471)
			g.PCIBusID = busID
			delete(g.More, "memory_affinity")
			for key, value := range map[string]string{"numa_node": ownNode, "memory_affinity": affinity} {
				if value != "" {
					g.More[key] = value
				}
			}
			return g
		}
		grace := gpu(1, "00000008:01:00.0", "2", "")
		x86 := gpu(2, "00000000:9A:00.0", "", "")
		byNVML := gpu(3, "00000000:1A:00.0", "26", "1") // the kernel says -1
		unknown := gpu(4, "00000000:1B:00.0", "10", "")
		sysfs := t.TempDir()
		pciDevice(t, sysfs, "0008:01:00.0", "0")
		pciDevice(t, sysfs, "0000:9a:00.0", "1")
		pciDevice(t, sysfs, "0000:1a:00.0", "-1")
		m.Set(machine(grace, x86, byNVML, unknown))
		all := nvmlAndSysfs(t, m, sysfs, quick()).fingerprint().until(groups(4))
		must.Eq(t, 0, intOf(groupOf(all, grace.UUID), "numa_node"))
		must.Eq(t, 1, intOf(groupOf(all, x86.UUID), "numa_node"))
		must.Eq(t, 1, intOf(groupOf(all, byNVML.UUID), "numa_node"))
		must.MapNotContainsKey(t, groupOf(all, unknown.UUID).Attributes, "numa_node")
	})
}

// NVML reads a GPU without error while its fabric is not ready, but each CUDA program fails with
// error 802.
func TestGPUOutsideItsFabricIsUnhealthy(t *testing.T) {
	fakenvml.Run(t, fabricComesUp)
}

// Drivers before R535 have the first version of the call only.
func TestGPUOutsideItsFabricByTheFirstVersion(t *testing.T) {
	fakenvml.Run(t, fabricComesUp, "nvmlDeviceGetGpuFabricInfoV")
}

func fabricComesUp(t *testing.T, m *fakenvml.Machine) {
	h100, alone := fakenvml.NewGPU(1, "NVIDIA H100 80GB HBM3", 81559), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
	h := realNVML(t, m, quick())
	set := func(state string) {
		h100.More["fabric"] = state
		m.Set(machine(h100, alone))
	}
	set("not_started")
	s := h.fingerprint()
	all := s.until(groups(2))
	must.True(t, health(h100.UUID, "fabric is not ready (not started): start nvidia-fabricmanager")(all))
	must.True(t, health(alone.UUID, "")(all))
	set("in_progress")
	s.until(health(h100.UUID, "(in progress)"))
	set("completed")
	s.until(health(h100.UUID, ""))
	set("failed")
	s.until(health(h100.UUID, "log of nvidia-fabricmanager"))
	set("completed")
	s.until(health(h100.UUID, ""))
}

// A recovery action that the driver reports for a GPU decides, whatever the Xid
// was: an ignored Xid can need a reset, and a contained one needs nothing.
func TestRecoveryActionDecidesInPlaceOfXids(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA H200", 143771)
		gpu.More["recovery_action"], gpu.More["remapped_rows"] = "0", "well"
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(groups(1))
		h.watched(m, []fakenvml.GPU{gpu})

		gpu.Events = append(gpu.Events, "xid 94")
		m.Set(machine(gpu))
		h.reads(10) // the Xid comes with one of them
		must.Eq(t, 0, failures(h.inventory(), gpu.UUID))

		for action, reason := range map[string]string{
			"1": "the driver asks for a reset of the GPU", "2": "the driver asks for a reboot of the node", "99": "the driver asks for recovery action 99",
		} {
			gpu.Events, gpu.More["recovery_action"] = append(gpu.Events, "xid 109"), action
			m.Set(machine(gpu))
			s.until(health(gpu.UUID, reason))
			h.reads(3)
			gpu.More["recovery_action"] = "0"
			m.Set(machine(gpu))
			s.until(func(all []*device.DeviceGroup) bool {
				return health(gpu.UUID, reason+"; on probation")(all) || health(gpu.UUID, "")(all)
			})
			h.inventoryUntil(func(i inventory) bool { return i.offered[0].health == "" })
		}
		must.Eq(t, 3*reported, failures(h.inventory(), gpu.UUID), must.Sprint("one failure each, however long"))
	})
}

// A fault of a GPU is a fault of its MIG instances: they have no separate driver and
// fabric.
func TestInstancesShareTheConditionOfTheirGPU(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		h100 := fakenvml.NewGPU(1, "NVIDIA H100 80GB HBM3", 81559)
		h100.MIGMode = "on"
		instance := fakenvml.NewMIG(1, "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40448)
		instance.More = map[string]string{"gpu_instance": "1", "compute_instance": "0"}
		h100.MIG = []fakenvml.GPU{instance}
		set := func(recovery, fabric, rows string) {
			h100.More["recovery_action"], h100.More["fabric"], h100.More["remapped_rows"] = recovery, fabric, rows
			m.Set(machine(h100))
		}
		set("0", "completed", "well")
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(health(instance.UUID, ""))
		set("1", "completed", "well")
		s.until(health(instance.UUID, "the driver asks for a reset of the GPU"))
		set("0", "not_started", "well")
		s.until(health(instance.UUID, "start nvidia-fabricmanager"))
		set("0", "completed", "pending")
		s.until(health(instance.UUID, "a defective memory row waits to be replaced"))
		set("0", "completed", "well")
		s.until(health(instance.UUID, ""))
	})
}

// Critical Xids in the configuration override the driver.
func TestCriticalXidsOutrankTheRecoveryAction(t *testing.T) {
	t.Parallel()
	named, err := newXidPolicy([]int{94}, nil)
	must.NoError(t, err)
	must.True(t, named.isCritical(nvml.Xid{UUID: "GPU-1", Code: 94}, true))
	standard, err := newXidPolicy(nil, nil)
	must.NoError(t, err)
	must.False(t, standard.isCritical(nvml.Xid{UUID: "GPU-1", Code: 94}, true))
	must.True(t, standard.isCritical(nvml.Xid{UUID: "GPU-1", Code: 94}, false))
}
