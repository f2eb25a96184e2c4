// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

var envName = regexp.MustCompile(`^GPU_MEM_RESERVATION_[0-9A-F]{12}$`)

// bookingOf books units of a GPU of eight units of one GiB.
func bookingOf(gpu allocator.GPUID, units ...int) allocator.Booking {
	return allocator.Booking{GPU: gpu, UnitMiB: 1024, Of: 8, TotalMiB: 8400, Units: allocator.NewUnitSet(units...)}
}

// envOf is the environment that Nomad merges from the bookings.
func envOf(t *testing.T, bookings ...allocator.Booking) map[string]string {
	t.Helper()
	env := map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1", "PATH": "/bin"}
	for _, booking := range bookings {
		key, value, err := booking.Env()
		must.NoError(t, err)
		must.MapNotContainsKey(t, env, key)
		env[key] = value
	}
	return env
}

func TestBooking_env(t *testing.T) {
	t.Parallel()
	key, value, err := bookingOf("GPU-1", 0, 1, 4).Env()
	must.NoError(t, err)
	must.RegexMatch(t, envName, key)
	must.Eq(t, `{"gpu":"GPU-1","unit_mib":1024,"of":8,"total_mib":8400,"units":"0-1,4"}`, value)
	must.Eq(t, 3072, bookingOf("GPU-1", 0, 1, 4).MiB())
}

func TestParseBookings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		booked, parsed []allocator.Booking
	}{
		{"none", nil, nil},
		{"one", []allocator.Booking{bookingOf("GPU-1", 0, 1)}, []allocator.Booking{bookingOf("GPU-1", 0, 1)}},
		{
			"two GPUs, by name",
			[]allocator.Booking{bookingOf("GPU-2", 0), bookingOf("GPU-1", 0)},
			[]allocator.Booking{bookingOf("GPU-1", 0), bookingOf("GPU-2", 0)},
		},
		{
			"two asks on one GPU",
			[]allocator.Booking{bookingOf("GPU-1", 0, 1), bookingOf("GPU-1", 4), bookingOf("GPU-1", 2)},
			[]allocator.Booking{bookingOf("GPU-1", 0, 1, 2, 4)},
		},
		{
			"a MIG instance with an old name",
			[]allocator.Booking{bookingOf("MIG-GPU-1/13/0", 7)},
			[]allocator.Booking{bookingOf("MIG-GPU-1/13/0", 7)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			parsed, err := allocator.ParseBookings(envOf(t, test.booked...))
			must.NoError(t, err)
			must.Eq(t, test.parsed, parsed)
		})
	}
}

func TestParseBookings_refuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"nothing":             ``,
		"null":                `null`,
		"text":                `GPU-1`,
		"more behind it":      `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":"0"}}`,
		"no GPU":              `{"unit_mib":1,"of":8,"units":"0"}`,
		"no unit size":        `{"gpu":"GPU-1","of":8,"units":"0"}`,
		"absurd unit size":    `{"gpu":"GPU-1","unit_mib":18446744073709551615,"of":8,"units":"0"}`,
		"negative size":       `{"gpu":"GPU-1","unit_mib":-1,"of":8,"units":"0"}`,
		"size as text":        `{"gpu":"GPU-1","unit_mib":"1","of":8,"units":"0"}`,
		"no units":            `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":""}`,
		"units as a list":     `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":[0]}`,
		"unit it has not":     `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":"8"}`,
		"GPU without units":   `{"gpu":"GPU-1","unit_mib":1,"of":0,"units":"0"}`,
		"GPU of many units":   `{"gpu":"GPU-1","unit_mib":1,"of":99999999,"units":"0"}`,
		"unit named twice":    `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":"0-3,2"}`,
		"units of two things": `{"gpu":"GPU-1","unit_mib":1,"of":8,"units":"0;1"}`,
	}
	for name, value := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := allocator.ParseBookings(map[string]string{allocator.BookingEnvPrefix + "X": value})
			must.ErrorIs(t, err, allocator.ErrInvalid)
			must.ErrorContains(t, err, allocator.BookingEnvPrefix+"X")
		})
	}
}

func TestParseBookings_refuses_two_that_differ(t *testing.T) {
	t.Parallel()
	other := bookingOf("GPU-1", 5)
	other.UnitMiB = 512
	_, err := allocator.ParseBookings(envOf(t, bookingOf("GPU-1", 0), other))
	must.ErrorIs(t, err, allocator.ErrInvalid)
	must.ErrorContains(t, err, "512")

	_, err = allocator.ParseBookings(envOf(t, bookingOf("GPU-1", 0, 1), bookingOf("GPU-1", 1, 2)))
	must.ErrorIs(t, err, allocator.ErrInvalid)
	must.ErrorContains(t, err, "booked twice")
}

func FuzzParseBookings(f *testing.F) {
	f.Add(`{"gpu":"GPU-1","unit_mib":1024,"of":8,"units":"0-3"}`, `{"gpu":"GPU-1","unit_mib":1024,"of":8,"units":"4"}`)
	f.Add(`{"gpu":"GPU-1","unit_mib":1,"of":8,"units":"0"}`, `{"gpu":"MIG-GPU-2/1/0","unit_mib":1,"of":1,"units":"0"}`)
	f.Add(`{"GPU":"GPU-1","gpu":"GPU-2","unit_mib":1,"of":8,"units":"0"}`, `null`)
	f.Add(`{"gpu":"\ud800","unit_mib":1e3,"of":8,"units":"0"}`, "\xff")
	f.Fuzz(func(t *testing.T, one, other string) {
		bookings, err := allocator.ParseBookings(map[string]string{
			allocator.BookingEnvPrefix + "1": one,
			allocator.BookingEnvPrefix + "2": other,
		})
		if err != nil {
			must.ErrorIs(t, err, allocator.ErrInvalid)
			return
		}
		env := map[string]string{}
		for _, booking := range bookings {
			key, value, err := booking.Env()
			must.NoError(t, err)
			must.True(t, strings.HasPrefix(key, allocator.BookingEnvPrefix))
			env[key] = value
		}
		again, err := allocator.ParseBookings(env)
		must.NoError(t, err)
		must.Eq(t, bookings, again)
	})
}
