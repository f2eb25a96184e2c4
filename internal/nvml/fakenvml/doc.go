// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package fakenvml is an NVML for machines without a GPU: a small
// libnvidia-ml.so.1 in C (folder c) that the real go-nvml loads by path, and
// what a test needs to build it and to write its state. Production code does
// not depend on it: only the plugin's option nvml_library differs.
//
// The library keeps no state. Each call reads the text file that the
// environment variable FAKE_NVML_STATE names, so a GPU can fail, hang, vanish
// and return while a program runs. State and Write produce such a file;
// testdata/example.state is one to copy and edit by hand. Replace the file by
// rename (Write does; so do most editors), or a call may read half of it.
//
// # Format
//
// Lines are "key = value"; '#' starts a comment line. Lines before the first
// section are about the node:
//
//	driver = 550.54.15
//	cuda = 12.4
//
// Each "[gpu]" starts a GPU; their order is NVML's index order. Each "[mig]"
// starts a MIG instance of the GPU above it and takes the same keys:
//
//	uuid = GPU-...           name = NVIDIA A100 80GB PCIe
//	memory = 81920           total, MiB
//	reserved = 620           kept by the driver, MiB
//	used = 1024              allocated, MiB; without it: what the processes use
//	process = 4242 1024      PID and MiB, or n/a; once per process; also
//	                         graphics_process and mps_process
//	pci_bus_id = 00000000:1A:00.0
//	minor = 0                compute_capability = 8.0
//	numa_node = 2            of GPUs whose own memory is a node of the host
//	memory_affinity = 0      the host's memory node that the GPU is near to
//	bar1 = 65536             MiB
//	power = 45000            power_limit = 300000    mW
//	temperature = 34         °C
//	utilization = 12 3       GPU and memory, per cent
//	sm_clock, memory_clock, max_sm_clock, max_memory_clock    MHz
//	pcie_generation = 4      pcie_width = 16         the maximum
//	persistence_mode, display, ecc_mode, retired_pages_pending    on or off
//	encoder = 0              decoder = 0             per cent
//	ecc_uncorrected = 0      volatile uncorrected errors; also ecc_l1, ecc_l2,
//	                         ecc_memory
//	remapped_rows = well     or pending, or failed
//	recovery_action = 1      asked for by the driver: 0 nothing, 1 a reset, 2 a
//	                         reboot, ... (nvmlDeviceGpuRecoveryAction_t)
//	fabric = completed       of the NVLink fabric; or not_started, in_progress, failed
//	mig = on                 the GPU supports MIG, which is on or off
//	gpu_instance, compute_instance    IDs, of a [mig]
//
// A missing key is a value that the GPU does not report: the call returns
// NOT_SUPPORTED, as on many real cards.
//
// Three keys may be set for the node or a GPU, several times each:
//
//	fail = nvmlDeviceGetMemoryInfo* GPU_IS_LOST
//	hang = nvmlDeviceGetName
//	event = xid 79
//
// The first makes a function return an NVML error, by name or number. The
// second blocks it until the line is removed. Functions are C symbols with their
// version suffix; a trailing '*' matches any ending. A driver that is not loaded
// yet is "fail = nvmlInit* DRIVER_NOT_LOADED" for the node, or no state file at
// all. An event is delivered once to each event set that was registered before
// the line was added, so lines are added and never removed. A number after the
// Xid is the GPU instance that it is about; other events are
// "event = <NVML type> <data>".
//
// A driver without a function needs another library: see Build.
package fakenvml
