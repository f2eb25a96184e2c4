// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"cmp"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// reading is everything read at one time.
type reading struct {
	at       time.Time
	snapshot *nvml.Snapshot // nil if err is not
	err      error          // NVML as a whole cannot be read
	table    tableView
	users    map[int]user
	between  bool // made between two polls; does not count for hysteresis
	release  *release
}

// tableView has the last known claims and cordons of this node's GPUs. A missing GPU was
// never looked up.
type tableView map[allocator.GPUID]tableEntry

// tableEntry is the last known entry of a GPU.
type tableEntry struct {
	allocator.GPU

	// spoilt means that its claims are unreadable now, so that no task can start on it. The
	// entry has the last known claims, if any.
	spoilt bool
}

// inventory is what the node offers after a reading.
type inventory struct {
	readAt  time.Time // of the last attempt; zero before the first
	good    bool      // NVML has answered at least once
	driver  string    // version
	cuda    *nvml.Version
	fault   error    // why NVML as a whole cannot be read now
	xids    []noted  // that came with this reading
	xidsErr error    // why Xids of some GPU are unavailable
	passed  []string // UUIDs that include or ignore leaves out

	offered []gpu // by PCI bus and UUID: indexes shift when a GPU is lost
	refused []gpu // present or past GPUs that cannot be offered; units is 0
}

// noted is an Xid and whether it took its GPU out of use.
type noted struct {
	nvml.Xid
	critical bool
}

// find returns an offered GPU.
func (i inventory) find(id allocator.GPUID) (gpu, bool) { return find(i.offered, id) }

func find(gpus []gpu, id allocator.GPUID) (gpu, bool) {
	at := slices.IndexFunc(gpus, func(g gpu) bool { return g.id() == id })
	if at < 0 {
		return gpu{}, false
	}
	return gpus[at], true
}

// after returns the inventory that follows a reading.
func (i inventory) after(r reading, set settings) inventory {
	next := inventory{readAt: r.at, good: i.good || r.err == nil, driver: i.driver, cuda: i.cuda, fault: r.err,
		passed: i.passed, xidsErr: i.xidsErr}
	if r.release != nil {
		return i.released(r)
	}
	if r.err != nil {
		next.refused = i.refused
		for _, known := range i.offered {
			next.offered = append(next.offered, known.unusable(r.err.Error()))
		}
		return next
	}
	next.driver, next.cuda, next.xidsErr = r.snapshot.DriverVersion, r.snapshot.CUDAVersion, r.snapshot.XidsErr
	for _, xid := range r.snapshot.Xids {
		next.xids = append(next.xids, noted{xid, set.xids.isCritical(xid, driverJudges(xid, r.snapshot))})
	}
	for _, found := range r.snapshot.GPUs {
		next.add(found, i, r, set)
	}
	next.keepMissing(i, r)
	slices.SortFunc(next.offered, func(a, b gpu) int {
		return cmp.Or(cmp.Compare(a.PCIBusID, b.PCIBusID), cmp.Compare(a.UUID, b.UUID))
	})
	return next
}

// add adds one GPU's reading.
func (i *inventory) add(found nvml.GPU, before inventory, r reading, set settings) {
	known, isKnown := before.find(allocator.GPUID(found.UUID))
	own := set.of(allocator.GPUID(found.UUID))
	if found.Memory == nil && own.sizeMiB > 0 && !found.MIGEnabled && found.Err == nil {
		found.Memory = configuredMemory(found, own.sizeMiB)
	}
	switch {
	case found.UUID == "" || i.has(found.UUID):
		// A GPU without a known UUID cannot be reported.
	case slices.Contains(i.passed, found.UUID):
	case !isKnown && found.Err == nil && !set.selects(found):
		// Decided once: its index, by which it may be selected, may become another GPU's.
		i.passed = append(slices.Clone(i.passed), found.UUID)
	case found.Err != nil && isKnown:
		i.offered = append(i.offered, known.failing(found.Err.Error()).blamed(i.xids))
	case found.Err != nil:
		i.refuse(found, "GPU cannot be read: "+found.Err.Error(), set)
	case found.MIGEnabled:
		i.refuse(found, "MIG is enabled: only instances can be used", set)
	case found.Memory == nil && isKnown:
		i.offered = append(i.offered, known.failing("NVML no longer tells the memory size").blamed(i.xids))
	case found.Memory == nil:
		i.refuse(found, "NVML tells no memory size; the GPU may share the host's memory: set memory_size to offer some of it", set)
	case sharesMemory(found, r.snapshot):
		i.refuseShared(found, known, isKnown, set)
	default:
		i.offer(found, known, isKnown, r, set)
	}
}

// configuredMemory is the memory of a GPU that does not report it: the size is configured,
// the use is the sum of its processes.
func configuredMemory(g nvml.GPU, sizeMiB uint64) *nvml.Memory {
	m := &nvml.Memory{TotalMiB: sizeMiB}
	for _, process := range g.Processes {
		if process.UsedMiB != nil {
			m.UsedMiB += *process.UsedMiB
		}
	}
	m.FreeMiB = subtractFloor(sizeMiB, m.UsedMiB)
	return m
}

// keepMissing adds the GPUs that are missing in a snapshot.
func (i *inventory) keepMissing(before inventory, r reading) {
	for _, known := range before.offered {
		switch {
		case i.has(known.UUID):
		case takenAway(known, r.snapshot):
			known.units = 0
			i.refused = append(i.refused, known.unusable("MIG instance no longer exists"))
		default:
			i.offered = append(i.offered, known.failing("NVML no longer reports this GPU").blamed(i.xids))
		}
	}
	for _, known := range before.refused {
		if !i.has(known.UUID) {
			i.refused = append(i.refused, known)
		}
	}
}

func (i *inventory) refuse(found nvml.GPU, reason string, set settings) {
	g := gpu{GPU: found, readAt: i.readAt, unitMiB: set.unitMiB,
		reservedMiB: reservedMiB(found.Memory, set.of(allocator.GPUID(found.UUID))), health: reason}
	i.refused = append(i.refused, g)
}

func (i inventory) has(uuid string) bool {
	same := func(g gpu) bool { return g.UUID == uuid }
	return slices.ContainsFunc(i.offered, same) || slices.ContainsFunc(i.refused, same)
}

// takenAway reports whether an operator removed a MIG instance, as opposed to an unreadable
// one: the GPU is readable and lists its instances without this one.
func takenAway(known gpu, s *nvml.Snapshot) bool {
	well := func(g nvml.GPU) bool { return g.UUID == known.Parent && g.Err == nil }
	anonymous := func(g nvml.GPU) bool { return g.Parent == known.Parent && g.UUID == "" }
	return known.Parent != "" && slices.ContainsFunc(s.GPUs, well) && !slices.ContainsFunc(s.GPUs, anonymous)
}
