// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestPressureHasPatience(t *testing.T) {
	t.Parallel()
	type polls struct{ n, want, wantAtLeast int }
	for name, tc := range map[string]struct {
		polls []polls
		units int
	}{
		"a peak":                        {[]polls{{pollsUp - 1, 5, 5}, {1, 0, 0}, {pollsUp - 1, 5, 5}}, 0},
		"use that stays":                {[]polls{{pollsUp, 5, 5}}, 5},
		"the least of a rising use":     {[]polls{{1, 2, 2}, {pollsUp - 1, 5, 5}}, 2},
		"and then the rest":             {[]polls{{1, 2, 2}, {pollsUp - 1, 5, 5}, {pollsUp, 5, 5}}, 5},
		"a dip":                         {[]polls{{pollsUp, 5, 5}, {pollsDown - 1, 0, 0}, {1, 5, 5}, {pollsDown - 1, 0, 0}}, 5},
		"use that ends":                 {[]polls{{pollsUp, 5, 5}, {pollsDown, 0, 0}}, 0},
		"the most of a falling use":     {[]polls{{pollsUp, 5, 5}, {1, 3, 3}, {pollsDown - 1, 0, 0}}, 3},
		"up and down at a unit's brink": {[]polls{{pollsUp, 5, 5}, {20, 4, 5}}, 5},
		"up and down every poll":        {[]polls{{pollsUp, 5, 5}, {1, 9, 9}, {1, 0, 0}, {1, 9, 9}, {1, 0, 0}, {1, 9, 9}}, 5},
	} {
		var p pressure
		for _, step := range tc.polls {
			for range step.n {
				p = p.step(step.want, step.wantAtLeast)
			}
		}
		must.Eq(t, tc.units, p.units, must.Sprint(name))
	}
}

func TestUnitsThatLackMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		unmanaged, spare uint64
		units            int
	}{{0, 0, 0}, {1, 0, 1}, {1024, 0, 1}, {1025, 0, 2}, {900, 935, 0}, {1960, 935, 2}} {
		must.Eq(t, tc.units, unitsIn(tc.unmanaged, tc.spare, 1024))
	}
}
