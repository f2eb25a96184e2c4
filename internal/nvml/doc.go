// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nvml reads NVIDIA GPUs through NVML, the driver's own library. It is
// the only importer of go-nvml; the rest of the program sees plain values.
//
// Start at Reader.Snapshot. A snapshot is every GPU and MIG instance of the
// node at one time; one GPU's failure is an error in that GPU's entry. A nil
// pointer always means that the GPU or driver does not report the value.
//
// The layers, from the bottom:
//
//	query    one NVML function, if the library has it
//	device   the values of one GPU, built from queries
//	lane     runs readings that may never return, one at a time
//	slot     one GPU's lane, and a cache of its constant values
//	xidWatch waits for the errors that drivers report as events
//	Reader   the session with the library and one slot per GPU
//
// Each has its file. attributes.go, condition.go and numa.go read a GPU's values, node.go those
// of the node; snapshot.go and xid.go have the results. fakenvml is an NVML for tests.
//
// # What must hold
//
// Calling a function that the loaded library lacks kills the process, since the
// dynamic linker resolves it at the first call. So every function is looked up
// before it is called, and the value of a missing one is nil.
//
// A call that hangs keeps its thread in the kernel and cannot be cancelled.
// Each GPU has a lane with at most one goroutine; while that one is stuck the
// GPU is reported as hung at once, and the others are read as usual.
//
// A process has one NVML. Symbols are bound to the library that was loaded
// first; a second Reader with another path would silently use that one. Until a
// library has been loaded, each snapshot retries its path, so the driver may be
// installed later.
package nvml
