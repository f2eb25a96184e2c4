// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestUnitSet_text(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want allocator.UnitSet
		back string // the canonical text, if it is another
	}{
		{text: ""},
		{text: "0", want: allocator.UnitSet{0}},
		{text: "0-3,7", want: allocator.UnitSet{0, 1, 2, 3, 7}},
		{text: "7,0-3", want: allocator.UnitSet{0, 1, 2, 3, 7}, back: "0-3,7"},
		{text: "1,2", want: allocator.UnitSet{1, 2}, back: "1-2"},
		{text: "5-5", want: allocator.UnitSet{5}, back: "5"},
		{text: "007", want: allocator.UnitSet{7}, back: "7"},
		{text: "32767", want: allocator.UnitSet{32767}},
	}
	for _, test := range tests {
		set, err := allocator.ParseUnitSet(test.text)
		must.NoError(t, err, must.Sprintf("%q", test.text))
		must.Eq(t, test.want, set)
		must.Eq(t, len(test.want), set.Len())
		if test.back == "" {
			test.back = test.text
		}
		must.Eq(t, test.back, set.String())
	}
}

func TestParseUnitSet_refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		",", "1,", "a", "-1", "1-", "3-1", "1-2-3", "1,1", "0-3,2", "+1", " 1", "0x1", "32768", "99999999999999999999",
		strings.Repeat("0-32767,", 1000) + "1", // small to write, large to hold
	} {
		_, err := allocator.ParseUnitSet(text)
		must.Error(t, err, must.Sprintf("%.20q", text))
	}
}

func TestUnitSet_operations(t *testing.T) {
	t.Parallel()
	a, b := allocator.NewUnitSet(3, 1, 2, 1), allocator.NewUnitSet(2, 9)
	must.Eq(t, allocator.UnitSet{1, 2, 3}, a)
	must.Eq(t, allocator.UnitSet{1, 2, 3, 9}, a.Union(b))
	must.Eq(t, allocator.UnitSet{2}, a.Intersect(b))
	must.True(t, a.Contains(3))
	must.False(t, a.Contains(9))
	must.True(t, a.Equal(allocator.NewUnitSet(1, 2, 3)))
	must.False(t, a.Equal(b))
}

func TestUnitID(t *testing.T) {
	t.Parallel()
	must.Eq(t, "GPU-1::0007", allocator.UnitID("GPU-1", 7))
	for _, gpu := range []allocator.GPUID{"GPU-1", "MIG-GPU-1/13/0", "a::b"} {
		for _, unit := range []int{0, 7, 9999, 10000} {
			back, number, err := allocator.ParseUnitID(allocator.UnitID(gpu, unit))
			must.NoError(t, err)
			must.Eq(t, gpu, back)
			must.Eq(t, unit, number)
		}
	}
	for _, id := range []string{"", "GPU-1", "::0007", "GPU-1::", "GPU-1::x", "GPU-1::-1", "GPU-1::40000"} {
		_, _, err := allocator.ParseUnitID(id)
		must.ErrorContains(t, err, id)
	}
}

func FuzzParseUnitSet(f *testing.F) {
	for _, text := range []string{"", "0", "0-3,7", "7,0-3", "3-1", "1,1", "0-32767", "007-08", "1-2-3", "-", "99999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := allocator.ParseUnitSet(text)
		if err != nil {
			return
		}
		must.Eq(t, set, allocator.NewUnitSet(set...)) // sorted, no repetition
		again, err := allocator.ParseUnitSet(set.String())
		must.NoError(t, err)
		must.Eq(t, set, again)

		data, err := json.Marshal(set)
		must.NoError(t, err)
		var back allocator.UnitSet
		must.NoError(t, json.Unmarshal(data, &back))
		must.Eq(t, set, back)
	})
}
