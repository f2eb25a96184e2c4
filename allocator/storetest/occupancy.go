// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"fmt"
	"sync"

	"nomad-gpu-mem/allocator"
)

// occupancy knows which units tasks of this process use: from the return of their claim
// until they begin to release it.
type occupancy struct {
	mu    sync.Mutex
	users map[place]int
}

// place is one unit of one GPU.
type place struct {
	gpu  allocator.GPUID
	unit int
}

func newOccupancy() *occupancy { return &occupancy{users: map[place]int{}} }

// enter fails if one of the units is in use.
func (o *occupancy) enter(task int, bookings []allocator.Booking) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := range places(bookings) {
		if other, used := o.users[at]; used {
			return fmt.Errorf("unit %d of GPU %s was given to task %d while task %d used it", at.unit, at.gpu, task, other)
		}
		o.users[at] = task
	}
	return nil
}

func (o *occupancy) leave(bookings []allocator.Booking) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := range places(bookings) {
		delete(o.users, at)
	}
}

func places(bookings []allocator.Booking) func(yield func(place) bool) {
	return func(yield func(place) bool) {
		for _, b := range bookings {
			for _, unit := range b.Units {
				if !yield(place{b.GPU, unit}) {
					return
				}
			}
		}
	}
}
