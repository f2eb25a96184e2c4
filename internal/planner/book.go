// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
)

// ReservationTime is how long units are kept for a task that was submitted. It
// spans from the plan to Nomad's booking, and no longer: what Nomad has booked
// the planner sees there.
const ReservationTime = 2 * time.Minute

// Reservation keeps the units of one task.
type Reservation struct {
	Owner allocator.Owner // Alloc is the reservation's ID
	Rooms []allocator.Room
}

// reservations are those of a group's places. There are none where nothing is
// started now, as in a batch queue, nor where Nomad gives a task the units of the one it replaces:
// they are not free yet.
func (p *planning) reservations(w *wanted, group Group) []Reservation {
	if isTemplate(p.job) || w.replaces() || p.cluster.Queue != "" {
		return nil
	}
	var all []Reservation
	for instance, place := range group.Places {
		byTask := map[string]int{} // position in all
		for _, s := range place.Slices {
			at, known := byTask[s.Task]
			if !known {
				at = len(all)
				byTask[s.Task] = at
				all = append(all, Reservation{Owner: allocator.Owner{
					Namespace: *p.job.Namespace, Job: *p.job.ID, Group: *w.spec.Name, Task: s.Task,
					Node: allocator.NodeID(place.Node), NodeName: allocator.NodeName(place.NodeName),
					Alloc: reservationID(*p.job.Namespace, *p.job.ID, *w.spec.Name, s.Task, instance),
				}})
			}
			all[at].add(allocator.Room{
				GPU: allocator.GPUID(s.GPU), UnitMiB: s.UnitMiB, Of: s.Of, Count: s.Units,
				Avoid: p.gpu(place.Node, s.GPU).Data.(*gpuData).avoid,
			})
		}
	}
	return all
}

// add adds room on a GPU, where two asks of a task may have met.
func (r *Reservation) add(room allocator.Room) {
	for i := range r.Rooms {
		if r.Rooms[i].GPU == room.GPU {
			r.Rooms[i].Count += room.Count
			return
		}
	}
	r.Rooms = append(r.Rooms, room)
}

// reservationID is the same for the same instance of the same task: planning a
// job again replaces its reservations and adds none.
func reservationID(namespace, job, group, task string, instance int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", namespace, job, group, task, instance))
	return "plan-" + hex.EncodeToString(sum[:12])
}

// Stale are the reservations of a job that the table has: those of an earlier
// plan.
func Stale(table *allocator.Snapshot, namespace, job string) []Reservation {
	var stale []Reservation
	for _, gpu := range table.GPUs {
		for _, claim := range gpu.Claims() {
			if claim.State == allocator.Reserved && claim.IsOf(namespace, job) {
				stale = append(stale, Reservation{Owner: claim.Owner, Rooms: []allocator.Room{{GPU: gpu.ID}}})
			}
		}
	}
	return stale
}
