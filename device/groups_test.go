// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/plugins/shared/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

func ptr[T any](v T) *T { return &v }

// full is a GPU that reports everything.
func full() nvml.GPU {
	g := gpuOf("GPU-1", 24576, 300)
	g.Name, g.Index = "Quadro RTX 6000/8000", 3
	g.NUMANode, g.ComputeCapability = ptr(1), &nvml.Version{Major: 8, Minor: 6}
	g.BAR1MiB, g.PCIBandwidthMBps = ptr[uint64](256), ptr[uint64](31504)
	g.MaxCoresClockMHz, g.MaxMemoryClockMHz, g.PowerLimitW = ptr[uint64](1410), ptr[uint64](1593), ptr[uint64](230)
	g.PersistenceMode, g.DisplayMode = ptr(true), ptr(false)
	g.TemperatureC, g.PowerW, g.UtilizationPct = ptr[uint64](41), ptr[uint64](61), ptr[uint64](35)
	g.MemoryBusyPct, g.EncoderPct, g.DecoderPct = ptr[uint64](12), ptr[uint64](1), ptr[uint64](2)
	g.BAR1UsedMiB, g.CoresClockMHz, g.MemoryClockMHz = ptr[uint64](3), ptr[uint64](1400), ptr[uint64](1500)
	g.ECCL1, g.ECCL2, g.ECCMemory = ptr[uint64](0), ptr[uint64](0), ptr[uint64](0)
	return g
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	i := history(t, Config{}, []nvml.GPU{full()})
	i.cuda = &nvml.Version{Major: 12, Minor: 4}
	must.Eq(t, map[string]*structs.Attribute{
		"uuid":               structs.NewStringAttribute("GPU-1"),
		"model":              structs.NewStringAttribute("Quadro RTX 6000/8000"),
		"index":              structs.NewIntAttribute(3, ""),
		"memory":             structs.NewIntAttribute(24576, "MiB"),
		"memory_unit":        structs.NewIntAttribute(1024, "MiB"),
		"units":              structs.NewIntAttribute(23, ""),
		"healthy_units":      structs.NewIntAttribute(23, ""),
		"driver_version":     structs.NewStringAttribute("550"),
		"cuda_version":       structs.NewFloatAttribute(12.4, ""),
		"compute_capability": structs.NewFloatAttribute(8.6, ""),
		"numa_node":          structs.NewIntAttribute(1, ""),
		"power":              structs.NewIntAttribute(230, "W"),
		"bar1":               structs.NewIntAttribute(256, "MiB"),
		"cores_clock":        structs.NewIntAttribute(1410, "MHz"),
		"memory_clock":       structs.NewIntAttribute(1593, "MHz"),
		"pci_bandwidth":      structs.NewIntAttribute(31504, "MB/s"),
		"display_state":      structs.NewStringAttribute("Disabled"),
		"persistence_mode":   structs.NewStringAttribute("Enabled"),
	}, deviceGroups(i)[0].Attributes)
}

func TestAttributesOfABareGPU(t *testing.T) {
	t.Parallel()
	group := deviceGroups(history(t, Config{}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}))[0]
	must.NoError(t, group.Validate())
	for _, absent := range []string{"numa_node", "power", "cuda_version", "display_state", "mig_profile"} {
		must.MapNotContainsKey(t, group.Attributes, absent)
	}
}

// What a job writes as a constraint must be comparable with what is published.
func TestAttributesCompareWithWhatJobsSay(t *testing.T) {
	t.Parallel()
	i := history(t, Config{}, []nvml.GPU{full()})
	i.cuda = &nvml.Version{Major: 12, Minor: 4}
	attributes := deviceGroups(i)[0].Attributes
	for _, tc := range []struct {
		name, literal string
		order         int
	}{
		{"memory", "24 GiB", 0},
		{"memory", "16000 MiB", 1},
		{"memory_unit", "1 GiB", 0},
		{"healthy_units", "23", 0},
		{"compute_capability", "8", 1},
		{"compute_capability", "8.6", 0},
		{"cuda_version", "12.5", -1},
		{"power", "0.2 kW", 1},
		{"index", "3", 0},
		{"model", "Quadro RTX 6000/8000", 0},
	} {
		order, comparable := attributes[tc.name].Compare(structs.ParseAttribute(tc.literal))
		must.True(t, comparable, must.Sprintf("%s and %q", tc.name, tc.literal))
		must.Eq(t, tc.order, order, must.Sprintf("%s and %q", tc.name, tc.literal))
	}
}

func TestUnhealthyGPU(t *testing.T) {
	t.Parallel()
	group := deviceGroups(history(t, Config{}, []nvml.GPU{gpuOf("GPU-1", 2048, 0)}, []nvml.GPU{failing("GPU-1")}))[0]
	must.Len(t, 2, group.Devices)
	for _, unit := range group.Devices {
		must.False(t, unit.Healthy)
		must.Eq(t, "GPU is lost", unit.HealthDesc)
	}
	must.Eq(t, 2, intOf(group, "units"))
	must.Eq(t, 0, intOf(group, "healthy_units"))
}

// docs/device-plugin.md names all that Nomad shows of a GPU.
func TestDocumentationNamesAttributesAndStatistics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/device-plugin.md")
	must.NoError(t, err)
	instance := full()
	instance.MIGProfile, instance.Parent = "1g.5gb", "GPU-0"
	i := history(t, Config{}, []nvml.GPU{instance})
	i.cuda = &nvml.Version{Major: 12}
	for name := range deviceGroups(i)[0].Attributes {
		must.StrContains(t, string(text), "`"+name+"`")
	}
	for name := range gpuStats(i.offered[0]) {
		must.StrContains(t, string(text), "`"+name+"`")
	}
	for name := range sliceStats(slice{}) {
		must.StrContains(t, string(text), "`"+name+"`")
	}
}

func TestSameOffer(t *testing.T) {
	t.Parallel()
	base := history(t, Config{}, []nvml.GPU{full()})
	for name, tc := range map[string]struct {
		change func(*nvml.GPU)
		same   bool
	}{
		"nothing":     {func(*nvml.GPU) {}, true},
		"use":         {func(g *nvml.GPU) { g.Memory.UsedMiB = 5000; g.Processes = []nvml.Process{{PID: 1}} }, true},
		"temperature": {func(g *nvml.GPU) { g.TemperatureC = ptr[uint64](80) }, true},
		"index":       {func(g *nvml.GPU) { g.Index++ }, false},
		"power limit": {func(g *nvml.GPU) { g.PowerLimitW = ptr[uint64](1) }, false},
		"memory":      {func(g *nvml.GPU) { g.Memory.TotalMiB -= 2048 }, false},
		"health":      {func(g *nvml.GPU) { g.Err = errLost }, false},
	} {
		g := full()
		tc.change(&g)
		next := history(t, Config{}, []nvml.GPU{full()}, []nvml.GPU{g})
		must.Eq(t, tc.same, sameOffer(base, next), must.Sprint(name))
		must.Eq(t, tc.same, reflect.DeepEqual(deviceGroups(base), deviceGroups(next)), must.Sprint(name))
	}
}

// Nomad keeps the reason once for each unit of the GPU.
func TestReasonOfACordonIsCut(t *testing.T) {
	t.Parallel()
	must.Eq(t, "cordoned: fan", cordoned(allocator.Cordon{Reason: "fan"}))
	long := cordoned(allocator.Cordon{Reason: strings.Repeat("ä", 500_000)})
	must.Eq(t, "cordoned: "+strings.Repeat("ä", maxReason)+"…", long)
}
