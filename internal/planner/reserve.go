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

// ReservationTime is how long units are reserved for a submitted task. It need only span
// the time from the plan to Nomad's booking: the planner sees what Nomad has booked.
const ReservationTime = 2 * time.Minute

// Reservation reserves the units of one task.
type Reservation struct {
	Owner    allocator.Owner // Alloc is the reservation's ID
	Requests []allocator.UnitRequest
}

// reservations returns the reservations for a group's places. There are none if nothing is
// started now, as in a batch queue, nor if a task gets the units of the task that it
// replaces: these are not free yet.
func (p *planning) reservations(w *groupPlan, group Group) []Reservation {
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
			all[at].add(allocator.UnitRequest{
				GPU: allocator.GPUID(s.GPU), UnitMiB: s.UnitMiB, TotalUnits: s.Of, Count: s.Units,
				Avoid: p.gpu(place.Node, s.GPU).Data.(*gpuData).avoid,
			})
		}
	}
	return all
}

// add adds a request. Two asks of a task may share a GPU.
func (r *Reservation) add(request allocator.UnitRequest) {
	for i := range r.Requests {
		if r.Requests[i].GPU == request.GPU {
			r.Requests[i].Count += request.Count
			return
		}
	}
	r.Requests = append(r.Requests, request)
}

// reservationID is stable for an instance of a task: planning a job again replaces its
// reservations and adds none.
func reservationID(namespace, job, group, task string, instance int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", namespace, job, group, task, instance))
	return "plan-" + hex.EncodeToString(sum[:12])
}

// StaleReservations returns the reservations that an earlier plan of a job left in the table.
func StaleReservations(table *allocator.Snapshot, namespace, job string) []Reservation {
	var stale []Reservation
	for _, gpu := range table.GPUs {
		for _, claim := range gpu.Claims() {
			if claim.State == allocator.Reserved && claim.IsOf(namespace, job) {
				stale = append(stale, Reservation{Owner: claim.Owner, Requests: []allocator.UnitRequest{{GPU: gpu.ID}}})
			}
		}
	}
	return stale
}
