// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/nvml"
)

// scene is a reading under construction: one GPU, who holds units of it, and
// who uses it.
type scene struct {
	t     *testing.T
	gpu   nvml.GPU
	table *allocator.Table
	users map[int]user
}

// newScene is a GPU of 8 GiB in units of 1 GiB, of which the driver keeps
// nothing and which nothing uses.
func newScene(t *testing.T) *scene {
	g := gpuOf("GPU-1", 8192, 0)
	g.Processes = []nvml.Process{}
	return &scene{t: t, gpu: g, table: allocator.NewTable(storetest.NewMemory()), users: map[int]user{}}
}

func ownerOf(alloc string) allocator.Owner {
	return allocator.Owner{Job: "job", Task: "task", Alloc: alloc, Node: "node"}
}

// bookingOf is some of eight units.
func bookingOf(units ...int) allocator.Booking {
	return allocator.Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 8, TotalMiB: 8192, Units: allocator.NewUnitSet(units...)}
}

// claim makes the container hold the units.
func (s *scene) claim(container string, units ...int) *scene {
	owner, ctx := ownerOf(container), s.t.Context()
	must.NoError(s.t, s.table.Claim(ctx, owner, allocator.Attempt{ID: "first"}, []allocator.Booking{bookingOf(units...)}))
	must.NoError(s.t, s.table.Running(ctx, owner, "first", container, []allocator.GPUID{"GPU-1"}))
	return s
}

// uses makes a process use memory; a negative number is one that NVML does not
// report. An empty container means none.
func (s *scene) uses(pid, mib int, container string, bookings ...allocator.Booking) *scene {
	s.stranger(pid, mib)
	u := user{bookings: bookings}
	if container != "" {
		u.containers = []string{container}
	}
	s.users[pid] = u
	return s
}

// stranger is an unknown process.
func (s *scene) stranger(pid, mib int) *scene {
	process := nvml.Process{PID: pid}
	if mib >= 0 {
		process.UsedMiB = ptr(uint64(mib))
		s.gpu.Memory = ptr(*s.gpu.Memory)
		s.gpu.Memory.UsedMiB += uint64(mib)
	}
	s.gpu.Processes = append(s.gpu.Processes, process)
	return s
}

// total sets the use that NVML reports.
func (s *scene) total(mib int) *scene {
	s.gpu.Memory = ptr(*s.gpu.Memory)
	s.gpu.Memory.UsedMiB = uint64(mib)
	return s
}

// firstVersion makes NVML report memory as the first version of its call does.
func (s *scene) firstVersion() *scene {
	s.gpu.Memory = ptr(*s.gpu.Memory)
	s.gpu.Memory.ReservedMiB = nil
	return s
}

// reading is what a poll sees, so many seconds after the epoch.
func (s *scene) reading(second int) reading {
	found, err := s.table.Inspect(s.t.Context(), "GPU-1")
	must.NoError(s.t, err)
	return reading{
		at:       time.Unix(int64(second), 0),
		snapshot: &nvml.Snapshot{DriverVersion: "550", GPUs: []nvml.GPU{s.gpu}},
		table:    tableView{"GPU-1": {GPU: found}},
		users:    s.users,
	}
}

// polls is what is offered of the GPU after so many polls.
func (s *scene) polls(c Config, n int) gpu {
	s.t.Helper()
	var all []reading
	for second := range n {
		all = append(all, s.reading(second+1))
	}
	i := story(s.t, c, all...)
	must.Len(s.t, 1, i.offered, must.Sprint(i.refused))
	return i.offered[0]
}

// held is what the table says of the scene's GPU.
func (s *scene) held() holdings {
	r := s.reading(1)
	return holdingsOf(r.table["GPU-1"].GPU, true, r.at)
}

func (g gpu) String() string {
	return fmt.Sprintf("%d of %d units, %s", g.healthyUnits(), g.units, g.unhealthy())
}

// holdOutside holds a number of units outside Nomad.
func (s *scene) holdOutside(units int) *scene {
	request := allocator.UnitRequest{GPU: "GPU-1", UnitMiB: 1024, TotalUnits: 8, Count: units}
	must.NoError(s.t, s.table.Request(s.t.Context(), ownerOf("outside"), time.Hour, request))
	return s
}

// reserve reserves a number of units for a later task.
func (s *scene) reserve(units int) *scene {
	request := allocator.UnitRequest{GPU: "GPU-1", UnitMiB: 1024, TotalUnits: 8, Count: units}
	must.NoError(s.t, s.table.Reserve(s.t.Context(), ownerOf("planned"), time.Minute, []allocator.UnitRequest{request}))
	return s
}
