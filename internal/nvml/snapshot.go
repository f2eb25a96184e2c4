// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"fmt"
)

// Snapshot is the state of the node's GPUs at one time, by NVML.
type Snapshot struct {
	DriverVersion string   // "550.54.15"; empty if unknown
	CUDAVersion   *Version // the highest that the driver supports

	// GPUs are in index order, each followed by its MIG instances.
	GPUs []GPU

	// Xids are the errors that drivers reported since the snapshot before.
	// XidsErr is why the Xids of some GPU are unavailable, or nil; only readings show the
	// faults of such a GPU.
	Xids    []Xid
	XidsErr error
}

// GPU is one physical GPU or one MIG instance. A nil pointer, a nil slice or an empty string is
// a value that NVML does not report for it.
type GPU struct {
	UUID string

	// Index is NVML's index of the physical GPU. It changes when another GPU
	// is lost or drained; never use it as an identity.
	Index int

	// Err is why the GPU cannot be read. UUID is then the last known one at this index, or
	// empty; of the other fields only Index, Parent, GPUInstance and Name are set.
	Err error

	Name       string // "NVIDIA A100 80GB PCIe"
	Parent     string // UUID of the physical GPU, if this is a MIG instance
	MIGProfile string // "1g.10gb", if this is a MIG instance

	// GPUInstance is the number of the MIG GPU instance that a MIG instance is
	// part of. Its Xids name it, and memory belongs to it: compute instances of one
	// GPU instance share it.
	GPUInstance *int

	// MIGEnabled marks a GPU in MIG mode. No program can use it as a whole,
	// whether or not it has instances.
	MIGEnabled bool

	Memory    *Memory
	Processes []Process // empty but not nil without processes

	// For a MIG instance the following fields are the physical GPU's.

	PCIBusID          string // "00000000:1A:00.0"
	NUMANode          *int   // the host's memory node nearest to the GPU
	ComputeCapability *Version

	BAR1MiB           *uint64
	BAR1UsedMiB       *uint64
	PCIBandwidthMBps  *uint64 // of the widest and fastest link, one direction, MB/s
	MaxCoresClockMHz  *uint64
	MaxMemoryClockMHz *uint64
	PowerLimitW       *uint64
	PersistenceMode   *bool
	DisplayMode       *bool // a display is connected
	ECCMode           *bool

	PowerW              *uint64
	TemperatureC        *uint64
	CoresClockMHz       *uint64
	MemoryClockMHz      *uint64
	UtilizationPct      *uint64 // time with at least one kernel running
	MemoryBusyPct       *uint64 // time with memory being read or written
	EncoderPct          *uint64 // time in which the encoder was used
	DecoderPct          *uint64
	UncorrectedECC      *uint64 // errors since the driver was loaded or the GPU reset
	ECCL1               *uint64 // those of them in the L1 caches
	ECCL2               *uint64 // in the L2 cache
	ECCMemory           *uint64 // in device memory
	RetiredPagesPending *bool   // a memory page waits for a reset to be retired

	// Rows is the state of defective memory rows, on GPUs that replace
	// them. Such GPUs contain most memory errors and keep running.
	Rows *Rows

	// Recovery is what the driver asks an operator to do, on drivers that judge the
	// GPU's errors themselves.
	Recovery *RecoveryAction

	// Fabric is the state of the GPU's registration with the NVLink fabric.
	Fabric *FabricState
}

// Rows is the state of a GPU's replacement of defective memory rows.
type Rows struct {
	Pending bool // a row is replaced at the next reset
	Failed  bool // a row could not be replaced: the GPU needs service
}

// Memory is a GPU's memory in MiB, rounded so that it is never oversold.
type Memory struct {
	TotalMiB uint64
	UsedMiB  uint64 // by processes; includes what is reserved if ReservedMiB is nil
	FreeMiB  uint64

	// ReservedMiB is the reserve of driver and firmware. Only nvmlDeviceGetMemoryInfo_v2
	// reports it separately from used memory.
	ReservedMiB *uint64
}

// Process is a process that uses a GPU.
type Process struct {
	PID     int     // in the host's PID namespace
	UsedMiB *uint64 // nil where NVML does not report it, as under WSL
}

// Version is a version of two numbers.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
