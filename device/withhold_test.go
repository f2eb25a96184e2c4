// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

func TestWithheldUnits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scene     func(*scene)
		config    Config
		unhealthy string
		why       string
	}{
		"none":                       {func(s *scene) { s.claim("c", 0, 7).uses(1, 2048, "c") }, Config{}, "", ""},
		"free ones, from the top":    {func(s *scene) { s.claim("c", 0, 7).uses(1, 2048, "x") }, Config{}, "5-6", "in use by processes that hold no slice"},
		"a task beyond its slice":    {func(s *scene) { s.claim("c", 0).uses(1, 1500, "c") }, Config{}, "7", "in use by processes"},
		"all free ones":              {func(s *scene) { s.claim("c", 0, 7).uses(1, 8000, "x") }, Config{}, "1-6", "in use by processes"},
		"not a booked one":           {func(s *scene) { s.uses(1, 500, "x", bookingOf(7)).uses(2, 500, "") }, Config{}, "6", "in use by processes"},
		"it is allowed":              {func(s *scene) { s.uses(1, 2048, "x") }, Config{AllowUnmanaged: true}, "", ""},
		"allowed for that GPU":       {func(s *scene) { s.uses(1, 2048, "x") }, Config{GPUs: map[string]GPUConfig{"GPU-1": {AllowUnmanaged: ptr(true)}}}, "", ""},
		"but not for that GPU":       {func(s *scene) { s.uses(1, 2048, "x") }, Config{AllowUnmanaged: true, GPUs: map[string]GPUConfig{"GPU-1": {AllowUnmanaged: ptr(false)}}}, "6-7", "in use"},
		"what is kept back first":    {func(s *scene) { s.uses(1, 1024, "x") }, Config{ReservedMemory: "1GiB"}, "", ""},
		"held outside":               {func(s *scene) { s.holdOutside(3) }, Config{}, "5-7", "held outside Nomad"},
		"held outside, and the rest": {func(s *scene) { s.holdOutside(3).uses(1, 4000, "") }, Config{}, "4-7", "in use by processes"},
		"not reserved ones":          {func(s *scene) { s.reserve(3) }, Config{}, "", ""},
		"kept back under a task":     {func(s *scene) { s.claim("c", 7) }, Config{ReservedMemory: "2GiB"}, "5-6", "reserved_memory"},
		"kept back, nothing above":   {func(s *scene) { s.claim("c", 0) }, Config{ReservedMemory: "2GiB"}, "", ""},
	} {
		s := newScene(t)
		tc.scene(s)
		g := s.polls(tc.config, pollsUp)
		must.Eq(t, tc.unhealthy, g.unhealthy().String(), must.Sprint(name))
		must.StrContains(t, g.whyWithheld(), tc.why, must.Sprint(name))
		must.Eq(t, "", g.health, must.Sprint(name))
	}
}

// What is free of memory never sells twice: free units are backed by memory
// that neither slices, nor reserve, nor others have.
func TestUnitsStayUnderTheirTask(t *testing.T) {
	t.Parallel()
	g := newScene(t).claim("c", 7).polls(Config{ReservedMemory: "2GiB"}, 1)
	must.Eq(t, 8, g.units)
	must.Eq(t, 6, g.healthyUnits(), must.Sprint("5 free ones and the task's"))

	g = newScene(t).claim("c", 5, 6).polls(Config{ReservedMemory: "7GiB"}, 1)
	must.Eq(t, 7, g.units)
	must.Eq(t, "0-4", g.unhealthy().String())
}

func TestAnotherUnitWaitsForTheTasks(t *testing.T) {
	t.Parallel()
	s := newScene(t).claim("c", 6)
	first := s.reading(1)
	g := story(t, Config{MemoryUnit: "2GiB"}, first).offered[0]
	must.Eq(t, 8, g.units)
	must.Eq(t, 1024, g.unitMiB)
	must.Eq(t, 0, g.healthyUnits())
	must.StrContains(t, g.health, `memory_unit = "2GiB", but tasks hold units of 1024 MiB`)

	must.NoError(t, s.table.Release(t.Context(), ownerOf("c"), "first", []allocator.GPUID{"GPU-1"}))
	g = story(t, Config{MemoryUnit: "2GiB"}, first, s.reading(2)).offered[0]
	must.Eq(t, 4, g.units)
	must.Eq(t, 4, g.healthyUnits())
}

// Nothing changes while the table cannot be read, and a reading between two
// polls does not count for hysteresis.
func TestWithholdingDoesNotFlap(t *testing.T) {
	t.Parallel()
	s := newScene(t).claim("c", 0).uses(1, 2048, "x")
	var all []reading
	for second := range 20 {
		r := s.reading(second)
		r.between = true
		all = append(all, r)
	}
	must.Eq(t, "", story(t, Config{}, all...).offered[0].unhealthy().String())

	all = nil
	for second := range pollsUp {
		all = append(all, s.reading(second))
	}
	for range 20 { // nothing is known of the GPU's user any more
		r := s.reading(30)
		r.users = nil
		all = append(all, r)
	}
	must.Eq(t, "6-7", story(t, Config{}, all[:pollsUp+pollsDown-1]...).offered[0].unhealthy().String())
}

// A container that cannot be stopped makes the whole GPU unhealthy, and no other,
// until it has ended.
func TestStuckContainer(t *testing.T) {
	t.Parallel()
	s := newScene(t).claim("c", 0).claim("d", 1)
	must.NoError(t, s.table.Stuck(t.Context(), ownerOf("c"), "first", []allocator.GPUID{"GPU-1"}))
	g := s.polls(Config{}, 1)
	must.Eq(t, 0, g.healthyUnits())
	must.StrContains(t, g.health, "the container of job/task")
	must.StrContains(t, g.health, "cannot be stopped")

	must.NoError(t, s.table.Release(t.Context(), ownerOf("c"), "first", []allocator.GPUID{"GPU-1"}))
	must.Eq(t, "", s.polls(Config{}, 1).health)
}

// A GPU on which starts fail because of the node is not offered for a while, and is then
// offered again.
func TestGPURestsAfterFailedStarts(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	epoch := allocator.WithClock(func() time.Time { return time.Unix(1, 0) })
	s.table = allocator.NewTable(storetest.NewMemory(), epoch)
	fail := func() {
		must.NoError(t, s.table.StartFailed(t.Context(), []allocator.GPUID{"GPU-1"}, "load nvidia-uvm"))
	}
	fail()
	fail()
	must.Eq(t, "", s.polls(Config{}, 1).health)
	fail()
	g := s.polls(Config{}, 1)
	must.Eq(t, 0, g.healthyUnits())
	must.StrContains(t, g.health, "load nvidia-uvm")
	must.Eq(t, g.health, s.polls(Config{}, 2).health, must.Sprint("each new text would be a change of the node"))
	i := story(t, Config{}, s.reading(1), s.reading(301))
	must.Eq(t, "", i.offered[0].health)
}
