// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"testing"

	"github.com/muesli/termenv"
	"github.com/shoenig/test/must"
)

func TestBar(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, units string
		width       int
		want        string
	}{
		{name: "one cell a unit", units: "aab.!", width: 5, want: "aab.!"},
		{name: "equally wide units", units: "ab.", width: 8, want: "aabb.."},
		{name: "units share cells", units: "aaaabb..", width: 4, want: "aab."},
		{name: "claims go before free units", units: "a..b", width: 2, want: "ab"},
		{name: "no claim is hidden by a larger one", units: "aaabaaaaa", width: 3, want: "aba"},
		{name: "a claim in a shared cell is not free", units: "aa....a...", width: 3, want: "aa."},
		{name: "free goes before unavailable", units: "!!.!", width: 2, want: "!."},
		{name: "no units", units: "", width: 5, want: ""},
		{name: "no room", units: "ab", width: 0, want: ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			must.Eq(t, tc.want, string(bar([]rune(tc.units), tc.width)))
		})
	}
}

func TestUsedCells(t *testing.T) {
	t.Parallel()
	tests := []struct {
		used, offered uint64
		want          int
	}{
		{used: 0, offered: 100, want: 0},
		{used: 1, offered: 1000, want: 1}, // little is not nothing
		{used: 50, offered: 100, want: 5},
		{used: 300, offered: 100, want: 10},
		{used: 5, offered: 0, want: 0},
	}
	for _, tc := range tests {
		must.Eq(t, tc.want, usedCells(10, Memory{UsedMiB: tc.used, OfferedMiB: tc.offered}))
	}
}

func TestPaintCells(t *testing.T) {
	t.Parallel()
	plain := paint{profile: termenv.Ascii}
	must.Eq(t, "aa.!++", plain.cells([]rune("aa.!一一"))) // a cell is one column
	colours := paint{profile: termenv.ANSI256}
	must.Eq(t, "\x1b[48;5;215;38;5;16maa\x1b[0m\x1b[2m.\x1b[0m", colours.cells([]rune("aa.")))
}

func TestFit(t *testing.T) {
	t.Parallel()
	must.Eq(t, "ab   ", fit("ab", 5))
	must.Eq(t, "abcd…", fit("abcdefgh", 5))
	must.Eq(t, "   ab", fitRight("ab", 5))
	must.Eq(t, "default/tr…/train", fitMiddle("default/training-of-it/main/train", 17))
	must.Eq(t, "一…", fit("一二三", 3))
}

// Nomad picks units in any order; the bar shows how many, not which.
func TestGrouped(t *testing.T) {
	t.Parallel()
	gpu := GPU{
		Map:    "b.a!ab.b!",
		Claims: []Claim{{Mark: "b", UnitCount: 3}, {Mark: "a", UnitCount: 2}},
	}
	must.Eq(t, "bbbaa..!!", string(grouped(gpu)))
}
