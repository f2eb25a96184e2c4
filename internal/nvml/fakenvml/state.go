// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package fakenvml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// StateEnv is the environment variable that names the state file.
const StateEnv = "FAKE_NVML_STATE"

// NotAvailable is the memory of a process for which NVML does not report it.
const NotAvailable = -1

// State is the simulated machine. The zero value has a driver and no GPU.
type State struct {
	Driver string // "550.54.15" if empty
	CUDA   string // "12.4" if empty
	GPUs   []GPU  // in index order
	Faults
}

// Faults are the faults of the node or of one GPU.
type Faults struct {
	Fail map[string]string // function, or its start and '*', to the name of an NVML error
	Hang []string          // functions that block, likewise
}

// GPU is one GPU or one MIG instance. Zero values are left out of the file, and NVML then does
// not report them.
type GPU struct {
	UUID, Name  string
	PCIBusID    string
	MemoryMiB   uint64
	ReservedMiB uint64
	Processes   map[int]int // PID to MiB, or NotAvailable
	MIG         []GPU       // instances
	MIGMode     string      // "on", "off" or "": not supported
	Events      []string    // such as "xid 79"
	More        map[string]string
	Faults
}

// NewGPU returns a healthy GPU with a UUID and a bus ID made from its number.
func NewGPU(number int, name string, memoryMiB uint64) GPU {
	return GPU{
		UUID:      fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", number),
		Name:      name,
		PCIBusID:  fmt.Sprintf("00000000:%02X:00.0", number),
		MemoryMiB: memoryMiB,
		More: map[string]string{
			"bar1": "256", "power": "30500", "power_limit": "300000", "temperature": "34", "utilization": "12 3",
			"sm_clock": "210", "memory_clock": "405", "max_sm_clock": "1410", "max_memory_clock": "1593",
			"pcie_generation": "4", "pcie_width": "16", "compute_capability": "8.0", "memory_affinity": "0",
			"persistence_mode": "on", "display": "off", "ecc_mode": "on", "ecc_uncorrected": "0",
			"ecc_l1": "0", "ecc_l2": "0", "ecc_memory": "0", "encoder": "4", "decoder": "5",
		},
	}
}

// NewMIG returns an instance of a GPU with MIG.
func NewMIG(number int, name string, memoryMiB uint64) GPU {
	return GPU{
		UUID:      fmt.Sprintf("MIG-%08d-0000-4000-8000-000000000000", number),
		Name:      name,
		MemoryMiB: memoryMiB,
	}
}

// Write replaces the state file at once; a call sees the old state or the new.
func (s State) Write(path string) error {
	return renameio.WriteFile(path, []byte(s.String()), 0o644)
}

// String is the content of the state file.
func (s State) String() string {
	var b strings.Builder
	put(&b, "driver", orDefault(s.Driver, "550.54.15"))
	put(&b, "cuda", orDefault(s.CUDA, "12.4"))
	s.Faults.write(&b)
	for _, gpu := range s.GPUs {
		gpu.write(&b, "[gpu]")
		for _, instance := range gpu.MIG {
			instance.write(&b, "[mig]")
		}
	}
	return b.String()
}

func (g GPU) write(b *strings.Builder, section string) {
	fmt.Fprintf(b, "\n%s\n", section)
	put(b, "uuid", g.UUID)
	put(b, "name", g.Name)
	put(b, "pci_bus_id", g.PCIBusID)
	put(b, "memory", number(g.MemoryMiB))
	put(b, "reserved", number(g.ReservedMiB))
	put(b, "mig", g.MIGMode)
	for _, pid := range slices.Sorted(maps.Keys(g.Processes)) {
		used := "n/a"
		if g.Processes[pid] != NotAvailable {
			used = fmt.Sprint(g.Processes[pid])
		}
		put(b, "process", fmt.Sprintf("%d %s", pid, used))
	}
	for _, key := range slices.Sorted(maps.Keys(g.More)) {
		put(b, key, g.More[key])
	}
	for _, event := range g.Events {
		put(b, "event", event)
	}
	g.Faults.write(b)
}

func (f Faults) write(b *strings.Builder) {
	for _, function := range slices.Sorted(maps.Keys(f.Fail)) {
		put(b, "fail", function+" "+f.Fail[function])
	}
	for _, function := range f.Hang {
		put(b, "hang", function)
	}
}

func put(b *strings.Builder, key, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s = %s\n", key, value)
	}
}

func number(mib uint64) string {
	if mib == 0 {
		return ""
	}
	return fmt.Sprint(mib)
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
