package device

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// inventory is what the node has to offer after a reading.
type inventory struct {
	readAt time.Time // of the last attempt; zero before the first
	good   bool      // NVML has answered at least once
	driver string    // version
	cuda   *nvml.Version
	fault  error // why NVML as a whole cannot be read now

	offered []gpu // by PCI bus and UUID: indexes shift when a GPU is lost
	refused []gpu // GPUs that are or were here and cannot be offered; units is 0
}

// gpu is one GPU or MIG instance.
type gpu struct {
	nvml.GPU           // the last good reading
	readAt   time.Time // of that reading

	unitMiB     uint64
	reservedMiB uint64 // kept back by the driver and by configuration
	units       int

	// health is why no unit can be used, or empty. Of a refused GPU it is why
	// the GPU is refused.
	health string
}

func (g gpu) id() allocator.GPUID { return allocator.GPUID(g.UUID) }

// healthyUnits is how many units Nomad may place tasks on.
func (g gpu) healthyUnits() int {
	if g.health != "" {
		return 0
	}
	return g.units
}

// find returns an offered GPU.
func (i inventory) find(id allocator.GPUID) (gpu, bool) {
	at := slices.IndexFunc(i.offered, func(g gpu) bool { return g.id() == id })
	if at < 0 {
		return gpu{}, false
	}
	return i.offered[at], true
}

// after returns the inventory that follows a reading: a snapshot or an error.
func (i inventory) after(s *nvml.Snapshot, err error, set settings, now time.Time) inventory {
	next := inventory{readAt: now, good: i.good || err == nil, driver: i.driver, cuda: i.cuda, fault: err}
	if err != nil {
		next.refused = i.refused
		for _, known := range i.offered {
			next.offered = append(next.offered, known.unusable(err.Error()))
		}
		return next
	}
	next.driver, next.cuda = s.DriverVersion, s.CUDAVersion
	for _, reading := range s.GPUs {
		next.add(reading, i, set)
	}
	next.keepMissing(i, s)
	slices.SortFunc(next.offered, func(a, b gpu) int {
		return cmp.Or(cmp.Compare(a.PCIBusID, b.PCIBusID), cmp.Compare(a.UUID, b.UUID))
	})
	return next
}

// add files one GPU's reading.
func (i *inventory) add(reading nvml.GPU, before inventory, set settings) {
	known, isKnown := before.find(allocator.GPUID(reading.UUID))
	switch {
	case reading.UUID == "" || i.has(reading.UUID):
		// Nothing can be said of a GPU that never told who it is.
	case reading.Err != nil && isKnown:
		i.offered = append(i.offered, known.unusable(reading.Err.Error()))
	case reading.Err != nil:
		i.refuse(reading, "GPU cannot be read: "+reading.Err.Error(), set)
	case reading.MIGEnabled:
		i.refuse(reading, "MIG is enabled: only instances can be used", set)
	case reading.Memory == nil && isKnown:
		i.offered = append(i.offered, known.unusable("NVML no longer tells the memory size"))
	case reading.Memory == nil:
		i.refuse(reading, "NVML tells no memory size; the GPU may share the host's memory", set)
	default:
		i.offer(reading, known, isKnown, set)
	}
}

// keepMissing files the GPUs of which a snapshot says nothing.
func (i *inventory) keepMissing(before inventory, s *nvml.Snapshot) {
	for _, known := range before.offered {
		switch {
		case i.has(known.UUID):
		case takenAway(known, s):
			known.units = 0
			i.refused = append(i.refused, known.unusable("MIG instance no longer exists"))
		default:
			i.offered = append(i.offered, known.unusable("NVML no longer reports this GPU"))
		}
	}
	for _, known := range before.refused {
		if !i.has(known.UUID) {
			i.refused = append(i.refused, known)
		}
	}
}

// maxUnits bounds a GPU's units: Nomad keeps each as an object of its node, and
// all must fit into one message.
const maxUnits = 4096

// offer divides a GPU into units. The division of a GPU that is offered already
// stands as long as its memory does: the driver's own share may vary a little,
// and a unit must not vanish under its task.
func (i *inventory) offer(reading nvml.GPU, known gpu, isKnown bool, set settings) {
	g := gpu{GPU: reading, readAt: i.readAt, unitMiB: set.unitMiB, reservedMiB: reservedMiB(reading.Memory, set), health: defect(reading)}
	if isKnown && known.Memory.TotalMiB == reading.Memory.TotalMiB {
		g.reservedMiB = known.reservedMiB
	}
	free := reading.Memory.TotalMiB - min(g.reservedMiB, reading.Memory.TotalMiB)
	units := free / set.unitMiB
	switch {
	case units == 0:
		i.refuse(reading, fmt.Sprintf("memory_unit = %q is larger than the %d MiB that this GPU can give", set.unitText, free), set)
	case units > maxUnits:
		i.refuse(reading, fmt.Sprintf("memory_unit = %q makes %d units of this GPU, %d are the most", set.unitText, units, maxUnits), set)
	default:
		g.units = int(units)
		i.offered = append(i.offered, g)
	}
}

func (i *inventory) refuse(reading nvml.GPU, reason string, set settings) {
	g := gpu{GPU: reading, readAt: i.readAt, unitMiB: set.unitMiB, reservedMiB: reservedMiB(reading.Memory, set), health: reason}
	i.refused = append(i.refused, g)
}

func (i inventory) has(uuid string) bool {
	same := func(g gpu) bool { return g.UUID == uuid }
	return slices.ContainsFunc(i.offered, same) || slices.ContainsFunc(i.refused, same)
}

// unusable keeps what is known of a GPU and says why it cannot be used.
func (g gpu) unusable(reason string) gpu {
	g.health = reason
	return g
}

// takenAway reports whether someone ended a MIG instance, as opposed to its
// being unreadable: the GPU is well, lists its instances, and this is none.
func takenAway(known gpu, s *nvml.Snapshot) bool {
	well := func(g nvml.GPU) bool { return g.UUID == known.Parent && g.Err == nil }
	anonymous := func(g nvml.GPU) bool { return g.Parent == known.Parent && g.UUID == "" }
	return known.Parent != "" && slices.ContainsFunc(s.GPUs, well) && !slices.ContainsFunc(s.GPUs, anonymous)
}

// reservedMiB is what cannot be sold. Without the second version of NVML's
// memory call, what the driver keeps for itself is not known.
func reservedMiB(m *nvml.Memory, set settings) uint64 {
	if m == nil || m.ReservedMiB == nil {
		return set.reservedMiB
	}
	return *m.ReservedMiB + set.reservedMiB
}
