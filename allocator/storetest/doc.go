// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package storetest holds what every allocator.Store must do, and what tests of
// other packages need in place of a real one.
//
//   - Run is the conformance suite of a store.
//   - RunTable puts an allocator.Table over a store and compares it with a
//     simple model, under random operations and from many goroutines at once.
//   - Prove and ProveProcesses check that the history of many clients, with
//     faults between table and store, is linearizable. seam.go has the faults,
//     operation.go the operations, spec.go what they should do.
//   - ManyTasks has tasks start and end, also on stores that fail meanwhile.
//   - Verify wraps a store and checks every ledger that is written to it.
//   - Memory is a store in memory that fails when told to; Leasing is one with
//     leases that end when told to.
package storetest
