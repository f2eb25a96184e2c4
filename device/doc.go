// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package device is the device plugin "gpu-mem": it offers the memory of each
// NVIDIA GPU to Nomad in units that can be sold one by one.
//
// Each GPU, or MIG instance, is one device group, nvidia/gpu-mem/<GPU UUID>,
// with one instance per unit, <GPU UUID>::<unit>. Nomad takes all instances of
// one ask from one group, so a task's units are always on one GPU.
//
// # Where to look
//
//	about.go        what the plugin is: its name, schema and configuration
//	plugin.go       the plugin and what it is given
//	poll.go         the only loop that reads GPUs
//	watch.go        the only loop that reads the table: claims and cordons
//	user.go         for whom a process on a GPU runs; cgroup.go parses
//	gone.go         which processes no longer exist; wsl.go: where none can be known
//	board.go        where the newest inventory hangs for all to see
//	fingerprint.go  from the inventory to Nomad's scheduler; groups.go builds
//	stats.go        to Nomad's statistics
//	publish.go      to the allocation table, with address.go the node's own
//	reserve.go      what a task is given that Nomad placed here
//
// What is offered is decided by pure functions of what was read:
//
//	inventory.go    all GPUs after a reading; selection.go: which of them
//	offer.go        how a GPU that can be read is divided into units
//	gpu.go          one GPU: whether it can be used, and which of its units
//	mig.go          compute instances that share one memory
//	health.go       what NVML's counters say; xid.go, what its events say
//	record.go       how far a GPU that has failed is trusted
//	release.go      what is offered while the NVML session is closed for a reset
//	holdings.go     what the table says of one GPU
//	occupancy.go    who uses its memory; pressure.go: with patience
//	withhold.go     which units cannot be used
//
// # What must hold
//
// Nomad ends a device plugin for good when its fingerprint stream carries an
// error or closes. So there is no such error: what cannot be read is unhealthy,
// with the reason, until it can be read again.
//
// Every message on the fingerprint stream makes Nomad register the node anew.
// So there is none while nothing changed, and groups, units and texts have a
// stable order and no times in them.
//
// A GPU that was offered stays offered while this process lives, unless its
// owner took it away. Nomad would forget the units that tasks hold on a group
// that is gone, and give them to others when it comes back.
//
// Neither NVML nor the table can delay the others, Reserve or Nomad: only the
// poll touches NVML, with a deadline, and only the watch and the publisher the
// table. When the table cannot be read, what it said last counts.
//
// A unit that its own task uses is never withheld for that, and nothing is
// withheld for what is not known.
package device
