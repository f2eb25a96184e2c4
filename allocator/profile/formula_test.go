// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package profile_test

import (
	"math"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/profile"
)

var resnet = profile.Formula{
	BaseMiB: 1500,
	MiBPer:  map[string]float64{"batch": 120.5, "workers": 64},
	MinMiB:  2048,
	MaxMiB:  24576,
}

func TestNeed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		formula    profile.Formula
		attributes map[string]string
		want       uint64
	}{
		{"sum, rounded up", resnet, map[string]string{"batch": "9", "workers": "2"}, 2713},
		{"raised to the least", resnet, map[string]string{"batch": "1", "workers": "0"}, 2048},
		{"just the most", resnet, map[string]string{"batch": "186", "workers": "10.3125"}, 24573},
		{"other attributes", resnet, map[string]string{"batch": "8", "workers": "2", "colour": "blue"}, 2592},
		{"base alone", profile.Formula{BaseMiB: 700.1}, nil, 701},
		{"no base", profile.Formula{MiBPer: map[string]float64{"layers": 0.5}}, map[string]string{"layers": "3"}, 2},
		{"saved by an attribute", profile.Formula{BaseMiB: 900, MiBPer: map[string]float64{"quantized": -300}}, map[string]string{"quantized": "1"}, 600},
		{"decimal fractions", profile.Formula{MiBPer: map[string]float64{"batch": 0.1}}, map[string]string{"batch": "30"}, 3},
		{"exponent", profile.Formula{BaseMiB: 1, MiBPer: map[string]float64{"parameters": 2e-6}}, map[string]string{"parameters": "7e9"}, 14001},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.formula.Need(tc.attributes)
			must.NoError(t, err)
			must.Eq(t, tc.want, got)
		})
	}
}

func TestNeed_errors(t *testing.T) {
	t.Parallel()
	per := func(mib float64) profile.Formula {
		return profile.Formula{BaseMiB: 100, MiBPer: map[string]float64{"batch": mib}}
	}
	tests := []struct {
		name    string
		formula profile.Formula
		batch   string
		err     error
		says    string
	}{
		{"missing", resnet, "8", profile.ErrAttribute, "workers is missing"},
		{"no number", per(1), "eight", profile.ErrAttribute, `invalid value "eight" of batch`},
		{"empty", per(1), "", profile.ErrAttribute, `invalid value "" of batch`},
		{"negative", per(1), "-8", profile.ErrAttribute, "want a number >= 0"},
		{"not finite", per(1), "NaN", profile.ErrAttribute, "want a number >= 0"},
		{"too large for a float", per(1), "1e999", profile.ErrAttribute, "want a number >= 0"},
		{"overflow", per(1e6), "1e308", profile.ErrNeed, "no GPU has"},
		{"absurd", per(1000), "1e9", profile.ErrNeed, "no GPU has"},
		{"zero", per(-10), "10", profile.ErrNeed, "0 MiB"},
		{"negative result", per(-10), "11", profile.ErrNeed, "-10 MiB"},
		{"above the most", profile.Formula{BaseMiB: 9000, MaxMiB: 8192}, "", profile.ErrNeed, "at most 8192"},
		{"formula", profile.Formula{}, "", profile.ErrInvalid, "neither a base nor an attribute"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.formula.Need(map[string]string{"batch": tc.batch})
			must.ErrorIs(t, err, tc.err)
			must.ErrorContains(t, err, tc.says)
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	must.NoError(t, resnet.Validate())
	for _, f := range []profile.Formula{
		{BaseMiB: -1},
		{BaseMiB: math.NaN()},
		{BaseMiB: math.Inf(1)},
		{BaseMiB: 1, MiBPer: map[string]float64{"": 1}},
		{BaseMiB: 1, MiBPer: map[string]float64{"Batch size": 1}},
		{BaseMiB: 1, MiBPer: map[string]float64{"batch": math.Inf(-1)}},
		{BaseMiB: 1, MinMiB: 10, MaxMiB: 9},
		{BaseMiB: 1, MinMiB: math.MaxUint64},
	} {
		must.ErrorIs(t, f.Validate(), profile.ErrInvalid, must.Sprintf("%+v", f))
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	must.Eq(t, 1, profile.Units(1, 1024))
	must.Eq(t, 1, profile.Units(1024, 1024))
	must.Eq(t, 2, profile.Units(1025, 1024))
	must.Eq(t, 0, profile.Units(1025, 0))
}
