// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// BookingEnvPrefix starts the name of every environment variable that carries
// a booking.
const BookingEnvPrefix = "GPU_MEM_RESERVATION_"

// maxUnitMiB bounds a unit's memory, so that no sum of units overflows. No GPU
// has a pebibyte.
const maxUnitMiB = 1 << 30

// maxMemoryMiB bounds the memory of a GPU, in MiB: maxUnits units of the largest size.
const maxMemoryMiB = maxUnits * maxUnitMiB

// Booking is what Nomad's scheduler gave to one device ask of a task: units of one GPU. The
// device plugin's Reserve returns it as environment: nothing else reaches a task driver
// outside Nomad's process, and Nomad restores nothing else after a restart of its agent.
type Booking struct {
	GPU      GPUID   `json:"gpu"`
	UnitMiB  uint64  `json:"unit_mib"`  // memory of one unit, MiB
	Of       int     `json:"of"`        // number of units the GPU is divided into
	TotalMiB uint64  `json:"total_mib"` // whole memory of the GPU, MiB
	Units    UnitSet `json:"units"`     // the units that Nomad booked
}

// MiB returns the memory of the booked units, in MiB.
func (b Booking) MiB() uint64 { return uint64(len(b.Units)) * b.UnitMiB }

// Validate returns an error that matches ErrInvalid if the booking is inconsistent.
func (b Booking) Validate() error {
	switch {
	case b.GPU == "":
		return fmt.Errorf("booking without a GPU: %w", ErrInvalid)
	case b.UnitMiB == 0 || b.UnitMiB > maxUnitMiB:
		return fmt.Errorf("booking of GPU %s: unit of %d MiB: %w", b.GPU, b.UnitMiB, ErrInvalid)
	case len(b.Units) == 0:
		return fmt.Errorf("booking of GPU %s: no units: %w", b.GPU, ErrInvalid)
	case b.Of <= 0 || b.Of > maxUnits:
		return fmt.Errorf("booking of GPU %s: GPU of %d units: %w", b.GPU, b.Of, ErrInvalid)
	case b.Units[0] < 0 || b.Units[len(b.Units)-1] >= b.Of:
		return fmt.Errorf("booking of GPU %s: units %s of a GPU that has %d: %w", b.GPU, b.Units, b.Of, ErrInvalid)
	}
	return nil
}

// Env returns the variable that carries the booking. Each booking has a different name:
// Nomad merges the environments of several asks by key, so a fixed name would keep the last
// one only.
func (b Booking) Env() (key, value string, err error) {
	if err := b.Validate(); err != nil {
		return "", "", err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return "", "", fmt.Errorf("encoding booking of GPU %s: %w", b.GPU, err)
	}
	sum := sha256.Sum256(text)
	return BookingEnvPrefix + strings.ToUpper(hex.EncodeToString(sum[:6])), string(text), nil
}

// ParseBookings returns all bookings in env, sorted by GPU, nil if there is none. Two asks
// that Nomad placed on one GPU become one booking with the units of both. env must be the
// map that only device plugins write (Nomad's DeviceEnv): a task's own environment could
// claim anything. Errors match ErrInvalid.
func ParseBookings(env map[string]string) ([]Booking, error) {
	merged := map[GPUID]Booking{}
	for key, value := range env {
		if !strings.HasPrefix(key, BookingEnvPrefix) {
			continue
		}
		var b Booking
		if err := json.Unmarshal([]byte(value), &b); err != nil {
			return nil, fmt.Errorf("environment variable %s: %w: %w", key, ErrInvalid, err)
		}
		if err := b.Validate(); err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", key, err)
		}
		if other, seen := merged[b.GPU]; seen {
			var err error
			if b, err = b.merge(other); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", key, err)
			}
		}
		merged[b.GPU] = b
	}
	var all []Booking
	for _, b := range merged {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Booking) int { return strings.Compare(string(a.GPU), string(b.GPU)) })
	return all, nil
}

func (b Booking) merge(other Booking) (Booking, error) {
	if b.UnitMiB != other.UnitMiB || b.Of != other.Of {
		return b, fmt.Errorf("GPU %s is booked as %d units of %d MiB and as %d units of %d MiB: %w",
			b.GPU, b.Of, b.UnitMiB, other.Of, other.UnitMiB, ErrInvalid)
	}
	if both := b.Units.Intersect(other.Units); len(both) > 0 {
		return b, fmt.Errorf("units %s of GPU %s are booked twice: %w", both, b.GPU, ErrInvalid)
	}
	b.Units = b.Units.Union(other.Units)
	return b, nil
}

// GPUsOf returns the GPUs of some bookings, in their order.
func GPUsOf(bookings []Booking) []GPUID {
	gpus := make([]GPUID, len(bookings))
	for i, b := range bookings {
		gpus[i] = b.GPU
	}
	return gpus
}
