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
//	inventory.go    pure: what is offered after a reading; health.go judges
//	board.go        where the newest inventory hangs for all to see
//	fingerprint.go  from the inventory to Nomad's scheduler; groups.go builds
//	stats.go        to Nomad's statistics
//	publish.go      to the allocation table
//	reserve.go      what a task is given that Nomad placed here
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
// poll touches NVML, with a deadline, and only the publisher the table.
package device
