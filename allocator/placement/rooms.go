// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// room is a kind of large task: one that needs more than half of the largest node. Whether it
// fits depends not on the total free memory, but on whether one node has it.
type room struct {
	cpu, mem int
	count    int32   // GPUs
	need     []int32 // of each, by kind
	size     float64 // of a task, in GPUs
	weight   float64 // how many of the demand

	// missed is the cost of losing a room, by the number of remaining ones, a measure in
	// MiB: the size of the task times the chance that one arrives while the others are
	// taken. It ends where that is negligible.
	missed []int64
}

const (
	// horizon is how far ahead room is kept, in mean lifetimes of tasks. Within it, the
	// cluster's share of tasks for that time arrives, and GPUs in use become free.
	horizon = 0.7

	// maxRooms bounds the kinds of large tasks that room is counted for.
	maxRooms = 8

	// alikeCPU is the largest ratio of the CPU of tasks that count as one kind.
	alikeCPU = 1.25

	// roomUnit is one room; a part of it is room that will likely exist soon.
	roomUnit = 64

	// mostBlocked is how many GPUs may be in use where there may be room soon.
	mostBlocked = 15
)

// rooms are amounts of each kind of room, in roomUnits.
type rooms [maxRooms]int16

// soon is the part of a room that will likely exist within the horizon, by the number of GPUs
// that must become free for it, in roomUnits.
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

// mergeAlike merges tasks with similar needs into one kind, and sorts the kinds by increasing
// CPU.
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

// mostWanted drops the kinds with the least demand, if there are too many.
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

// andLarger returns the weight of a kind and of those with the same GPUs and more CPU: they use
// the same rooms.
func (r room) andLarger(following []room) float64 {
	weight := r.weight
	for _, other := range following {
		if r.sameGPUs(other) {
			weight += other.weight
		}
	}
	return weight
}

// moreThan returns the chances that more than 0, 1, 2, ... tasks arrive, given the expected
// number, until they are negligible (Poisson).
func moreThan(expected float64) []float64 {
	const nothing = 1e-4
	var chances []float64
	if expected <= 0 { // without GPUs
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

// roomsIn counts the rooms of every kind on a node with these GPUs, and the likely part of one
// more, for which GPUs and CPU must become free.
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

// blocked returns how many GPUs must become free for so many rooms, or 0 if that is impossible.
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
