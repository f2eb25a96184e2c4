// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package device is the device plugin "gpu-mem": it offers the memory of each
// NVIDIA GPU to Nomad in units that Nomad books one by one.
//
// Each GPU, or MIG instance, is one device group, nvidia/gpu-mem/<GPU UUID>,
// with one instance per unit, <GPU UUID>::<unit>. Nomad takes all instances of
// one ask from one group, so a task's units are always on one GPU.
//
// # Where to look
//
//	about.go        the plugin's name, schema and configuration; config.go checks it
//	plugin.go       the plugin and its dependencies
//	poll.go         the only loop that reads GPUs
//	watch.go        the only loop that reads the table: claims and cordons
//	lazytable.go    opens the table when it is first needed
//	user.go         the container and the bookings of a process; cgroup.go parses
//	gone.go         which processes no longer exist; wsl.go: hosts without PIDs
//	board.go        holds the newest inventory for all readers
//	usage.go        whether an agent still uses this process
//	fingerprint.go  reports device groups to Nomad's scheduler; groups.go builds them
//	stats.go        reports statistics to Nomad
//	publish.go      writes the allocation table; address.go: the node's address
//	log.go          logs each change once
//	reserve.go      the environment of a task that Nomad placed here
//
// Pure functions of what was read decide what is offered:
//
//	inventory.go    all GPUs after a reading; selection.go: which of them
//	offer.go        how a readable GPU is divided into units
//	gpu.go          one GPU: whether it is healthy, and which of its units are
//	mig.go          compute instances that share one memory
//	health.go       faults by NVML's counters; xid.go: by its events
//	record.go       probation of a GPU that has failed
//	release.go      what is offered while the NVML session is closed for a reset
//	holdings.go     the table's entries of one GPU
//	occupancy.go    which slice each process's memory counts for; pressure.go: with hysteresis
//	withhold.go     which units are withheld
//
// # What must hold
//
// Nomad ends a device plugin permanently when its fingerprint stream carries
// an error or closes. So it never does: a GPU that cannot be read is unhealthy,
// with the reason, until it can be read again.
//
// Every message on the fingerprint stream makes Nomad register the node again.
// So the plugin sends none without a change, and groups, units and texts have a
// stable order and contain no times.
//
// A GPU that was offered stays offered while this process lives, unless the
// operator removes it. Nomad would forget the units that tasks hold on a missing
// group, and book them for others when the group returns.
//
// Neither NVML nor the table can delay the others, Reserve or Nomad: only the
// poll uses NVML, with a deadline, and only the watch and the publisher use the
// table. While the table cannot be read, its last state counts.
//
// A unit is never withheld because its own task uses it, and nothing is
// withheld without evidence.
package device
