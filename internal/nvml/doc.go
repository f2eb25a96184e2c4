// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package nvml reads NVIDIA GPUs through NVML, the driver's own library. It is
// the only importer of go-nvml; the rest of the program sees plain values.
//
// Start at Reader.Snapshot. A snapshot is every GPU and MIG instance of the
// node at one time; one GPU's failure is an error in that GPU's entry. A nil
// pointer always means "this GPU or driver cannot tell".
//
// The layers, from the bottom:
//
//	query    one NVML function, if the library has it
//	device   what one GPU tells about itself, built from queries
//	lane     runs queries that may never return, one at a time
//	slot     one GPU's lane, and what of the GPU need be asked only once
//	xidWatch waits for the errors that drivers report by themselves
//	Reader   the session with the library and one slot per GPU
//
// # What must hold
//
// Calling a function that the loaded library lacks kills the process: the
// dynamic linker finds out at the first call. So every function is looked up
// before it is called, and an absent one is "cannot tell".
//
// A call that hangs keeps its thread in the kernel and cannot be cancelled.
// Each GPU has a lane with at most one goroutine; while that one is stuck the
// GPU is reported as hung at once, and the others are read as ever.
//
// A process has one NVML. Symbols are bound to the library that was loaded
// first, and a second Reader with another path would silently be answered by
// that one. Until a library has been loaded, its path is tried again with each
// snapshot, so a driver may come late.
package nvml
