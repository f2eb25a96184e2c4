// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"errors"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
)

var errLost = errors.New("GPU is lost")

// gpuOf is one GPU with this memory, of which the driver keeps some.
func gpuOf(uuid string, totalMiB, reservedMiB uint64) nvml.GPU {
	return nvml.GPU{
		UUID: uuid, Name: "NVIDIA A30", PCIBusID: "bus of " + uuid,
		Memory: &nvml.Memory{TotalMiB: totalMiB, FreeMiB: totalMiB, ReservedMiB: &reservedMiB},
	}
}

func failing(uuid string) nvml.GPU { return nvml.GPU{UUID: uuid, Err: errLost} }

// history is what is offered after several readings, none of which fails as a whole.
func history(t *testing.T, c Config, readings ...[]nvml.GPU) inventory {
	t.Helper()
	var all []reading
	for n, gpus := range readings {
		all = append(all, reading{at: time.Unix(int64(n+1), 0), snapshot: &nvml.Snapshot{DriverVersion: "550", GPUs: gpus}})
	}
	return story(t, c, all...)
}

// story is what is offered after several readings.
func story(t *testing.T, c Config, readings ...reading) inventory {
	t.Helper()
	set, err := c.settings()
	must.NoError(t, err)
	var i inventory
	for _, r := range readings {
		i = i.after(r, set)
	}
	return i
}

func TestUnitsOfAGPU(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config          Config
		total, reserved uint64
		units           int
		reason          string
	}{
		"fits":                   {Config{}, 8192, 0, 8, ""},
		"rest is not sold":       {Config{}, 11175, 0, 10, ""},
		"driver's share":         {Config{}, 8192, 1, 7, ""},
		"operator's share":       {Config{ReservedMemory: "1GiB"}, 8192, 0, 7, ""},
		"both shares":            {Config{ReservedMemory: "1GiB"}, 8192, 1, 6, ""},
		"small unit":             {Config{MemoryUnit: "256MiB"}, 2002, 0, 7, ""},
		"one unit":               {Config{MemoryUnit: "24GiB"}, 24576, 0, 1, ""},
		"unit too large":         {Config{MemoryUnit: "32GiB"}, 24576, 0, 0, `memory_unit = "32GiB" is larger than the 24576 MiB`},
		"more kept than there":   {Config{ReservedMemory: "32GiB"}, 24576, 0, 0, `reserved_memory = "32GiB" leaves 0 of this GPU's 24576 MiB`},
		"rest is less than one":  {Config{ReservedMemory: "24000MiB"}, 24576, 0, 0, `reserved_memory = "24000MiB" leaves 576 of`},
		"too large either way":   {Config{ReservedMemory: "64GiB", MemoryUnit: "32GiB"}, 24576, 0, 0, `memory_unit = "32GiB" is larger`},
		"more units than allows": {Config{MemoryUnit: "1MiB"}, 24576, 0, 0, `makes 24576 units`},
	} {
		i := history(t, tc.config, []nvml.GPU{gpuOf("GPU-1", tc.total, tc.reserved)})
		if tc.units > 0 {
			must.Len(t, 1, i.offered, must.Sprint(name))
			must.Eq(t, tc.units, i.offered[0].units, must.Sprint(name))
			continue
		}
		must.Len(t, 0, i.offered, must.Sprint(name))
		must.Len(t, 1, i.refused, must.Sprint(name))
		must.StrContains(t, i.refused[0].health, tc.reason, must.Sprint(name))
	}
}

func TestWhatIsOfferedStaysOffered(t *testing.T) {
	t.Parallel()
	parent := gpuOf("GPU-P", 24576, 0)
	parent.MIGEnabled = true
	instance := gpuOf("MIG-1", 6144, 0)
	instance.Parent = parent.UUID
	unknownSize := gpuOf("GPU-1", 8192, 0)
	unknownSize.Memory = nil
	becameMIG := gpuOf("GPU-1", 8192, 0)
	becameMIG.MIGEnabled, becameMIG.Memory = true, nil

	for name, tc := range map[string]struct {
		first, second []nvml.GPU
		health        []string // of each GPU offered after both
	}{
		"nothing new":                  {[]nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []string{""}},
		"fails":                        {[]nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{failing("GPU-1")}, []string{"GPU is lost"}},
		"vanishes":                     {[]nvml.GPU{gpuOf("GPU-1", 8192, 0)}, nil, []string{"NVML no longer reports this GPU"}},
		"forgets its size":             {[]nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{unknownSize}, []string{"NVML no longer tells the memory size"}},
		"fails from the start":         {[]nvml.GPU{failing("GPU-1")}, []nvml.GPU{failing("GPU-1")}, nil},
		"recovers":                     {[]nvml.GPU{failing("GPU-1")}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []string{""}},
		"has no name":                  {[]nvml.GPU{failing("")}, []nvml.GPU{failing("")}, nil},
		"is listed twice":              {nil, []nvml.GPU{gpuOf("GPU-1", 8192, 0), gpuOf("GPU-1", 8192, 0)}, []string{""}},
		"is divided by MIG":            {[]nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{becameMIG}, nil},
		"instance is destroyed":        {[]nvml.GPU{parent, instance}, []nvml.GPU{parent}, nil},
		"instance's GPU fails":         {[]nvml.GPU{parent, instance}, []nvml.GPU{failing("GPU-P")}, []string{"NVML no longer reports this GPU"}},
		"instance fails with its GPU":  {[]nvml.GPU{parent, instance}, []nvml.GPU{failing("GPU-P"), failing("MIG-1")}, []string{"GPU is lost"}},
		"instance is unreadable":       {[]nvml.GPU{parent, instance}, []nvml.GPU{parent, {Parent: "GPU-P", Err: errLost}}, []string{"NVML no longer reports this GPU"}},
		"order is that of the machine": {[]nvml.GPU{gpuOf("GPU-2", 8192, 0), gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{gpuOf("GPU-2", 8192, 0)}, []string{"NVML no longer reports this GPU", ""}},
	} {
		i := history(t, Config{}, tc.first, tc.second)
		var got []string
		for _, g := range i.offered {
			got = append(got, g.health)
		}
		must.Eq(t, tc.health, got, must.Sprint(name))
	}
}

func TestUnitsDoNotVanishUnderTheirTasks(t *testing.T) {
	t.Parallel()
	i := history(t, Config{},
		[]nvml.GPU{gpuOf("GPU-1", 8192, 0)},
		[]nvml.GPU{gpuOf("GPU-1", 8192, 5)}) // the driver took a little more
	must.Eq(t, 8, i.offered[0].units)

	i = history(t, Config{},
		[]nvml.GPU{gpuOf("GPU-1", 8192, 0)},
		[]nvml.GPU{gpuOf("GPU-1", 7680, 5)}) // the GPU was reset with ECC
	must.Eq(t, 7, i.offered[0].units)
}

func TestFaultOfTheNode(t *testing.T) {
	t.Parallel()
	set, err := Config{}.settings()
	must.NoError(t, err)
	broken := reading{at: time.Unix(9, 0), err: errLost}
	i := inventory{}.after(broken, set)
	must.False(t, i.good)
	must.Len(t, 0, i.offered)

	i = history(t, Config{}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}).after(broken, set)
	must.True(t, i.good)
	must.Eq(t, "GPU is lost", i.offered[0].health)
	must.Eq(t, 0, i.offered[0].healthyUnits())
	must.Eq(t, time.Unix(1, 0), i.offered[0].readAt, must.Sprint("the last good reading"))
}

func TestDestroyedInstanceIsToldToTheTable(t *testing.T) {
	t.Parallel()
	parent, instance := gpuOf("GPU-P", 24576, 0), gpuOf("MIG-1", 6144, 0)
	parent.MIGEnabled, instance.Parent = true, parent.UUID
	with, without := []nvml.GPU{parent, instance}, []nvml.GPU{parent}
	state := gpuStates(history(t, Config{}, with, without, without), "node")["MIG-1"]
	must.Eq(t, 0, state.Units)
	must.Eq(t, "MIG instance no longer exists", state.Health)
	must.Len(t, 1, history(t, Config{}, with, without, with).offered)
}

func TestDefectsMakeAGPUUnhealthy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		errors  *uint64
		pending *bool
		health  string
	}{
		"cannot tell":    {},
		"well":           {ptr[uint64](0), ptr(false), ""},
		"memory errors":  {ptr[uint64](1), nil, "uncorrected memory errors since the driver was loaded; reset the GPU (first: nomad-gpu-mem cordon --release)"},
		"page to retire": {nil, ptr(true), "a defective memory page waits to be retired; reset the GPU (first: nomad-gpu-mem cordon --release)"},
	} {
		g := gpuOf("GPU-1", 8192, 0)
		g.UncorrectedECC, g.RetiredPagesPending = tc.errors, tc.pending
		i := history(t, Config{}, []nvml.GPU{g})
		must.Eq(t, tc.health, i.offered[0].health, must.Sprint(name))
		must.Eq(t, "", history(t, Config{}, []nvml.GPU{g}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}).offered[0].health)
	}
}
