// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package allocator holds the rules of the allocation table: which task holds
// which units of which GPU's memory, anywhere in the cluster.
//
// The words, from small to large:
//
//   - A unit is the quantum of GPU memory that is sold. A GPU is divided into
//     units numbered from 0; see UnitSet.
//   - A Booking is what Nomad's scheduler gave to one device ask: units of one
//     GPU. The task's environment carries it from the device plugin to the task
//     driver.
//   - A Claim is the table's record that one task holds a slice: its units of
//     one GPU.
//   - A Ledger is one GPU's claims with its unit map. It is the unit of
//     contention and of atomicity: one key, changed by check-and-set.
//   - A Store keeps versioned values under keys. The sub-packages consul and
//     file are two; storetest tests what every store must do.
//   - A Table applies the rules to a store. The plugins and the command line
//     use it. Start reading at Table.Claim.
//
// What must always hold: a unit is held by at most one claim (the unit map
// cannot express more), a claim holds at least one unit, and an owner has at
// most one claim per GPU. Ledger.Check verifies it, and the table does not
// write a ledger that fails it. Totals are derived, never stored.
//
// A claim is durable. It ends when its container is proven gone or when an
// operator releases it, never because a server, a network or a lock was lost.
//
// # Where to look
//
//   - table.go: Table; change.go, combiner.go, retry.go: how it changes ledgers
//   - claim.go, attempt.go, age.go: Claim and the attempt of its task; booking.go: Booking
//   - ledger.go, unitmap.go: Ledger, the rules of claiming; units.go: UnitSet
//   - reservation.go: reservations, and requests and holds outside Nomad; keep.go
//     confirms a hold
//   - claimsize.go, shorten.go: bounds of a claim's size; startfault.go: failed starts
//   - state.go, publish.go, putgpu.go: states of nodes and GPUs; lease.go: leases
//   - node.go, gpu.go: identities; keys.go: all keys; schema.go: versions of values
//   - snapshot.go, decoder.go, inspect.go: reading; use.go, withdrawn.go: what a GPU's
//     state shows
//   - cordon.go, profile.go: entries that operators write
//   - purge.go, purgegpu.go: deleting entries; reach.go: probing the store
//   - store.go: Store; errors.go: the sentinels
//
// The package and those below internal import the standard library only.
package allocator
