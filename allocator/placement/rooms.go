// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// room is a kind of large task: one that needs more than half of the largest
// node. Whether it fits is not a matter of how much memory is free, but of whether
// one node has it.
type room struct {
	cpu, mem int
	count    int32   // GPUs
	need     []int32 // of each, by kind
	size     float64 // of a task, in GPUs
	weight   float64 // how many of the demand

	// missed says what the loss of a room costs, by how many there are without
	// it, a measure in MiB: the size of the task, as likely as one will come that
	// finds the others taken. It ends where that is next to nothing.
	missed []int64
}

const (
	// horizon is how far ahead room is kept, in mean lifetimes of tasks. Within
	// it, as many tasks come as the cluster holds in that part of a lifetime, and
	// GPUs that are in use come free.
	horizon = 0.7

	// maxRooms bounds the kinds of large tasks that room is counted for.
	maxRooms = 8

	// alikeCPU is how much more CPU tasks of one kind may want than the least of
	// them.
	alikeCPU = 1.25

	// roomUnit is one room; a part of it is room that there will likely be soon.
	roomUnit = 64

	// mostBlocked is how many GPUs may be in use where there may be room soon.
	mostBlocked = 15
)

// rooms are amounts of each kind of room, in roomUnits.
type rooms [maxRooms]int16

// soon is the part of a room that there will likely be within the horizon, by the
// GPUs that must come free for it, in roomUnits.
type soon [mostBlocked + 1]int16

// setRooms finds the kinds of large tasks, and what the loss of room for one
// costs.
func (t *target) setRooms(demand []Class, s supply) {
	var all float64 // GPUs that the demand asks for
	var large []room
	for _, d := range demand {
		size := s.gpusFor(d.Request)
		all += d.Weight * size
		if c := newClass(d.Request, s.kinds); 2*len(c.asks) > max(2, s.node) && d.Weight > 0 {
			large = append(large, room{
				cpu: c.cpu, mem: c.mem, count: int32(len(c.asks)), need: c.asks[0].need, size: size, weight: d.Weight,
			})
		}
	}
	t.rooms = mostWanted(mergeAlike(large))
	for i := range t.rooms {
		r := &t.rooms[i]
		expected := horizon * float64(s.total()) * r.andLarger(t.rooms[i+1:]) / all
		for _, chance := range moreThan(expected) {
			r.missed = append(r.missed, int64(math.Round(chance*r.size*float64(t.gpuMiB)*one)))
		}
	}
	for blocked := 1; blocked <= mostBlocked; blocked++ {
		t.soon[blocked] = int16(roomUnit * math.Pow(1-math.Exp(-horizon), float64(blocked)))
	}
}

// mergeAlike makes one kind of tasks that want about the same, and sorts the
// kinds: those with more CPU come after those with less.
func mergeAlike(all []room) []room {
	slices.SortStableFunc(all, room.compare)
	var merged []room
	least := 0
	for _, r := range all {
		if n := len(merged); n > 0 && merged[n-1].sameGPUs(r) && float64(r.cpu) <= alikeCPU*float64(least) {
			last := &merged[n-1]
			last.cpu, last.mem = r.cpu, max(last.mem, r.mem)
			last.weight += r.weight
			continue
		}
		least = r.cpu
		merged = append(merged, r)
	}
	return merged
}

// mostWanted leaves out the kinds that make up least of the demand, if there are
// too many.
func mostWanted(all []room) []room {
	if len(all) <= maxRooms {
		return all
	}
	slices.SortStableFunc(all, func(a, b room) int { return cmp.Compare(b.weight*b.size, a.weight*a.size) })
	all = all[:maxRooms]
	slices.SortStableFunc(all, room.compare)
	return all
}

func (r room) compare(other room) int {
	return cmp.Or(cmp.Compare(r.count, other.count), slices.Compare(r.need, other.need), cmp.Compare(r.cpu, other.cpu))
}

func (r room) sameGPUs(other room) bool {
	return r.count == other.count && slices.Equal(r.need, other.need)
}

// andLarger is the weight of a kind and of those that want the same GPUs and
// more CPU: they take the same rooms.
func (r room) andLarger(following []room) float64 {
	weight := r.weight
	for _, other := range following {
		if r.sameGPUs(other) {
			weight += other.weight
		}
	}
	return weight
}

// moreThan returns the chances that more than 0, 1, 2, ... come of so many that
// are expected, up to where they are next to nothing (Poisson).
func moreThan(expected float64) []float64 {
	const nothing = 1e-4
	var chances []float64
	if expected <= 0 { // there are no GPUs
		return nil
	}
	chance := 1.0
	for n := 0.0; n < expected+10*(1+math.Sqrt(expected)); n++ {
		factorial, _ := math.Lgamma(n + 1)
		chance -= math.Exp(n*math.Log(expected) - expected - factorial)
		if chance < nothing {
			return chances
		}
		chances = append(chances, chance)
	}
	return chances
}

// roomsIn counts the rooms of every kind on a node with these GPUs, and the part
// of one more that is likely soon: the GPUs and the CPU that it lacks must come
// free.
func (t *target) roomsIn(gpus []gpu, cpu, mem int) (found rooms) {
	for i := range t.rooms {
		r := &t.rooms[i]
		var fitting int32
		for _, g := range gpus {
			if g.free >= r.need[g.kind] {
				fitting++
			}
		}
		whole := fitting / r.count
		if r.cpu > 0 {
			whole = min(whole, int32(cpu/r.cpu))
		}
		if r.mem > 0 {
			whole = min(whole, int32(mem/r.mem))
		}
		found[i] = int16(whole)*roomUnit + t.soon[r.blocked(whole+1, fitting, int32(len(gpus)), cpu)]
	}
	return found
}

// blocked is how many GPUs must come free before there are so many rooms, or 0
// if there will not be.
func (r *room) blocked(wanted, fitting, gpus int32, cpu int) int32 {
	if wanted*r.count > gpus {
		return 0
	}
	blocked := wanted*r.count - fitting
	if short := int(wanted)*r.cpu - cpu; short > 0 { // a GPU comes free with its share of the CPU
		blocked = max(blocked, int32((short*int(r.count)+r.cpu-1)/r.cpu))
	}
	if blocked < 0 || blocked > mostBlocked {
		return 0
	}
	return blocked
}
