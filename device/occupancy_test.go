// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestUnmanagedMemory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scene     func(*scene)
		mib       uint64
		uncertain bool
	}{
		"idle":                            {func(*scene) {}, 0, false},
		"idle, and the driver uses some":  {func(s *scene) { s.total(220) }, 0, false},
		"idle, first version of the call": {func(s *scene) { s.firstVersion().total(912) }, 0, false},
		"task within its slice":           {func(s *scene) { s.claim("c", 0, 1).uses(1, 2000, "c") }, 0, false},
		"task beyond its slice":           {func(s *scene) { s.claim("c", 0, 1).uses(1, 3000, "c") }, 952, false},
		"two processes of a task":         {func(s *scene) { s.claim("c", 0, 1).uses(1, 1500, "c").uses(2, 1500, "c") }, 952, false},
		"container started by hand":       {func(s *scene) { s.uses(1, 2002, "x") }, 2002, false},
		"unmanaged program":               {func(s *scene) { s.uses(1, 2002, "") }, 2002, false},
		"both beside a task":              {func(s *scene) { s.claim("c", 0, 1, 2, 3).uses(1, 10, "c").uses(2, 2000, "") }, 2000, false},
		"use without a process":           {func(s *scene) { s.total(3000) }, 3000 - allocator.IdleMiB, false},

		// Nomad's own Docker driver makes no claim and hands the booking on.
		"task without a claim":        {func(s *scene) { s.uses(1, 1900, "x", bookingOf(4, 5)) }, 0, false},
		"and beyond its slice":        {func(s *scene) { s.uses(1, 2100, "x", bookingOf(4, 5)) }, 52, false},
		"booking of another GPU":      {func(s *scene) { s.uses(1, 900, "x", allocator.Booking{GPU: "GPU-2", UnitMiB: 1024}) }, 900, false},
		"claim and booking are one":   {func(s *scene) { s.claim("c", 4, 5).uses(1, 1900, "y", bookingOf(4, 5)) }, 0, false},
		"process is not known":        {func(s *scene) { s.stranger(1, 7000) }, 0, false},
		"its use is unknown too":      {func(s *scene) { s.stranger(1, -1).total(7000) }, 0, true},
		"task use is unknown":         {func(s *scene) { s.claim("c", 0, 1).uses(1, -1, "c").total(2048 + 1000) }, 0, false},
		"and the total is far beyond": {func(s *scene) { s.claim("c", 0, 1).uses(1, -1, "c").total(6000) }, 6000 - 2048 - allocator.IdleMiB, false},
		"no list of processes":        {func(s *scene) { s.gpu.Processes = nil; s.claim("c", 0, 1).total(6000) }, 6000 - 2048 - allocator.IdleMiB, false},
		"units outside cover it":      {func(s *scene) { s.holdOutside(2).uses(1, 2000, "") }, 0, false},
		"but no more than they are":   {func(s *scene) { s.holdOutside(2).uses(1, 2100, "") }, 52, false},
		"a reservation explains none": {func(s *scene) { s.reserve(2).uses(1, 2000, "") }, 2000, false},
	} {
		s := newScene(t)
		tc.scene(s)
		o := occupy(s.gpu, 1024, s.held(), s.users)
		must.Eq(t, tc.mib, o.unmanagedMiB, must.Sprint(name))
		must.Eq(t, tc.uncertain, o.uncertain, must.Sprint(name))
	}
}

func TestNothingIsSaidBeforeTheTableWasRead(t *testing.T) {
	t.Parallel()
	s := newScene(t).uses(1, 5000, "x")
	o := occupy(s.gpu, 1024, holdingsOf(allocator.GPU{}, false, s.reading(1).at), s.users)
	must.True(t, o.uncertain)
}

func TestSlicesAndTheirUse(t *testing.T) {
	t.Parallel()
	s := newScene(t).claim("c1", 2, 3).claim("c2", 0).
		uses(1, 100, "c1").uses(2, 50, "c1").uses(3, -1, "c2").uses(4, 30, "x", bookingOf(6, 7))
	o := occupy(s.gpu, 1024, s.held(), s.users)
	must.Len(t, 3, o.slices)
	must.Eq(t, "0", o.slices[0].units.String())
	must.True(t, o.slices[0].partly)
	must.Eq(t, 150, o.slices[1].usedMiB)
	must.Eq(t, 2048, o.slices[1].mib)
	must.Eq(t, "6-7", o.slices[2].units.String())
	must.Eq(t, 30, o.slices[2].usedMiB)
}
