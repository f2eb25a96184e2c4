// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxUnits bounds a unit number. The largest GPU sold has 288 GiB; with the
// smallest sensible unit (16 MiB) that is 18,432 units.
const maxUnits = 1 << 15

// UnitSet is a set of unit numbers of one GPU, in rising order and without
// repetition. Its text form is a list of ranges: "0-3,7".
type UnitSet []int

// NewUnitSet returns the set of the given numbers, in any order.
func NewUnitSet(units ...int) UnitSet {
	set := slices.Clone(units)
	slices.Sort(set)
	return slices.Compact(set)
}

// ParseUnitSet reads the text form. The empty string is the empty set.
func ParseUnitSet(s string) (UnitSet, error) {
	if s == "" {
		return nil, nil
	}
	var units []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, err := parseRange(part)
		if err != nil {
			return nil, fmt.Errorf("unit set %q: %w", s, err)
		}
		if len(units)+last-first >= maxUnits {
			return nil, fmt.Errorf("unit set has more than %d units", maxUnits)
		}
		for unit := first; unit <= last; unit++ {
			units = append(units, unit)
		}
	}
	set := NewUnitSet(units...)
	if len(set) != len(units) {
		return nil, fmt.Errorf("unit set %q: duplicate unit", s)
	}
	return set, nil
}

func parseRange(s string) (first, last int, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if first, err = parseUnit(from); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return first, first, nil
	}
	if last, err = parseUnit(to); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("invalid range %q, want for example 0-3", s)
	}
	return first, last, nil
}

func parseUnit(s string) (int, error) {
	unit, err := strconv.ParseUint(s, 10, 32)
	if err != nil || unit >= maxUnits {
		return 0, fmt.Errorf("invalid unit number %q, want 0 to %d", s, maxUnits-1)
	}
	return int(unit), nil
}

// Len returns the number of units.
func (s UnitSet) Len() int { return len(s) }

// String returns the text form.
func (s UnitSet) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		run := i + 1
		for run < len(s) && s[run] == s[run-1]+1 {
			run++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s[i]))
		if run > i+1 {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(s[run-1]))
		}
		i = run
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler with the text form.
func (s UnitSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *UnitSet) UnmarshalText(text []byte) error {
	set, err := ParseUnitSet(string(text))
	if err != nil {
		return err
	}
	*s = set
	return nil
}

// Contains reports whether the unit is in the set.
func (s UnitSet) Contains(unit int) bool {
	_, found := slices.BinarySearch(s, unit)
	return found
}

// Union returns the units that are in s or in other.
func (s UnitSet) Union(other UnitSet) UnitSet {
	return NewUnitSet(slices.Concat(s, other)...)
}

// Intersect returns the units that are in both s and other.
func (s UnitSet) Intersect(other UnitSet) UnitSet {
	var both UnitSet
	for _, unit := range s {
		if other.Contains(unit) {
			both = append(both, unit)
		}
	}
	return both
}

// Equal reports whether both sets have the same units.
func (s UnitSet) Equal(other UnitSet) bool { return slices.Equal(s, other) }
