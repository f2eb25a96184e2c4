// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package storetest tests what every allocator.Store must do, and has stores for the tests of
// other packages.
//
//   - Run is the conformance suite of a store.
//   - RunTable compares an allocator.Table on a store with a simple model, under
//     random operations and from many goroutines at once.
//   - Prove and ProveProcesses check that the history of many clients, with
//     faults between table and store, is linearizable. seam.go has the faults,
//     operation.go the operations, spec.go what they should do.
//   - ManyTasks starts and ends tasks, also on stores that fail meanwhile.
//   - Verify wraps a store and checks every ledger that is written to it.
//   - Memory is a store in memory with failures on demand; Leasing is one with
//     leases that a test expires.
//
// suite.go has Run, with isolation.go; table.go RunTable and ManyTasks; prove.go, processes.go and history.go
// Prove and ProveProcesses; occupancy.go checks units in use; verify.go has Verify, memory.go
// Memory, leasing.go Leasing, and full.go a ledger of the largest size.
package storetest
