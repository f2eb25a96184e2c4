// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import "math"

// losses are the different losses of room that places cause, and what each costs now. The cost
// depends on the whole cluster and changes constantly, so cached scores exclude it and name
// their loss instead.
type losses struct {
	known  []rooms
	number map[rooms]uint16
	cost   []int64 // of each, in points of a score
	paid   paid    // what the costs are for

	kinds    []room // of the target
	weight   int64  // of Room
	gpus     int    // of the cluster
	sizeMiB  int64  // of all its GPUs
	freeMiB  int64
	freeRoom [maxRooms]int
}

// paid is the state of the cluster that the costs of losses depend on.
type paid struct {
	rooms [maxRooms]int // that are free
	lasts int64         // see losses.lasts
}

const (
	// maxLosses bounds the losses that are distinguished. Further ones count as
	// none.
	maxLosses = 4096

	// mostLost is more rooms than one placement takes.
	mostLost = 64

	// ample is the spare memory with which a room lasts until it is needed, in units of
	// the square root of the cluster's GPUs: about the random deviation of the demand from
	// its mean, in GPUs.
	ample = 3.4

	// lastsSteps are the steps from rooms that last to those that do not.
	lastsSteps = 16
)

func newLosses(t *target, policy Policy, s supply) losses {
	l := losses{
		known: make([]rooms, 1), number: map[rooms]uint16{{}: 0}, cost: make([]int64, 1),
		kinds: t.rooms, weight: int64(policy.Weights[Room]), gpus: s.total(),
	}
	for i, k := range s.kinds {
		l.sizeMiB += int64(s.gpus[i]) * int64(k.sizeMiB)
	}
	return l
}

// change counts the rooms and the free memory of a node that changed.
func (l *losses) change(before, after *rooms, freeMiB int64) {
	for i := range l.kinds {
		l.freeRoom[i] += int(after[i]/roomUnit) - int(before[i]/roomUnit)
	}
	l.freeMiB += freeMiB
}

// lasts returns how much keeping room is worth, in lastsSteps. If random arrivals soon fill the
// cluster, small tasks take the room before a large one arrives.
func (l *losses) lasts() int64 {
	spare := math.Sqrt(float64(l.gpus)) * float64(l.freeMiB) / float64(max(1, l.sizeMiB))
	lasts := min(1, spare/ample)
	return int64(lastsSteps * lasts * lasts * lasts)
}

// add returns the number of a loss.
func (l *losses) add(lost rooms) uint16 {
	number, known := l.number[lost]
	if known || len(l.known) == maxLosses {
		return number
	}
	number = uint16(len(l.known))
	l.number[lost] = number
	l.known = append(l.known, lost)
	l.cost = append(l.cost, l.weight*l.missed(&lost))
	return number
}

// update updates the costs.
func (l *losses) update() {
	now := paid{lasts: l.lasts()}
	for i := range l.kinds {
		now.rooms[i] = min(l.freeRoom[i], len(l.kinds[i].missed)+mostLost)
	}
	if now == l.paid {
		return
	}
	l.paid = now
	for i := range l.known {
		l.cost[i] = l.weight * l.missed(&l.known[i])
	}
}

// missed returns the cost of lost rooms, a measure in MiB. One task fills room of several
// kinds, but only one later task will miss it: the largest cost counts.
func (l *losses) missed(lost *rooms) int64 {
	var most int64
	for i := range l.kinds {
		missed, sum := l.kinds[i].missed, int64(0)
		left := l.freeRoom[i]
		for rest := int64(lost[i]); rest > 0; rest -= roomUnit {
			left = max(0, left-1)
			if left < len(missed) {
				sum += missed[left] * min(rest, roomUnit) / roomUnit
			}
		}
		most = max(most, sum)
	}
	return most / lastsSteps * l.paid.lasts
}

// lost counts the rooms that the place in p.work takes.
func (p *Placer) lost() rooms {
	w := &p.work
	lost := w.had
	for i, left := range p.target.roomsIn(w.gpus, w.cpu, w.mem) {
		lost[i] -= left
	}
	return lost
}

// recount counts the rooms and the free memory of a node that changed.
func (p *Placer) recount(at int32) {
	n := &p.nodes[at]
	var now rooms
	if n.spec.Out == "" {
		now = p.target.roomsIn(n.gpus, n.spec.CPU, n.spec.MemoryMiB)
	}
	free := 0
	for _, g := range n.gpus {
		free += int(g.free)
	}
	p.losses.change(&n.counted.rooms, &now, int64(free-n.counted.freeMiB))
	n.counted = counted{rooms: now, freeMiB: free}
}

// rate returns the score of a node without what the place costs in rooms, and
// which loss of rooms that is.
func (p *Placer) rate(at int32, c *class) (score int64, loss uint16) {
	score = p.assign(at, c)
	if score == unfit || len(p.target.rooms) == 0 {
		return score, 0
	}
	p.settle(at, c)
	return score, p.losses.add(p.lost())
}

// settle applies to p.work the place that assign found for the request.
func (p *Placer) settle(at int32, c *class) {
	w := &p.work
	w.load(&p.nodes[at], c)
	for i := range c.asks {
		w.take(&c.asks[i], int(w.chosen[i]), p.target)
	}
}
