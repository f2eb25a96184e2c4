// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// free is the character of a unit that no claim holds.
const free = '.'

// letters are the marks that claims get first; see nthMark.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// unitMap has one character for each unit of a GPU: free, or the mark of the
// claim that holds it. One unit has one character, so it has one holder. In
// JSON it is a string: "aaaabbbbbb.............".
type unitMap []rune

// nthMark returns the n-th mark: letters, then CJK ideographs and the characters after them.
// There are enough below the surrogates for maxUnits claims.
func nthMark(n int) rune {
	if n < len(letters) {
		return rune(letters[n])
	}
	return rune(0x4E00 + n - len(letters))
}

// isMark reports whether a character may be a mark: it is visible, and neither the free unit
// '.' nor '!', which `status` shows for unavailable units.
func isMark(r rune) bool {
	return r != free && r != '!' && !unicode.IsControl(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.M, unicode.Cf)
}

// unitsOf returns the units with the mark.
func (m unitMap) unitsOf(mark rune) UnitSet {
	var units UnitSet
	for unit, have := range m {
		if have == mark {
			units = append(units, unit)
		}
	}
	return units
}

// freeUnits returns up to count free units, the highest numbers first.
func (m unitMap) freeUnits(count int, avoid UnitSet) UnitSet {
	var units []int
	for unit := len(m) - 1; unit >= 0 && len(units) < count; unit-- {
		if m[unit] == free && !avoid.Contains(unit) {
			units = append(units, unit)
		}
	}
	return NewUnitSet(units...)
}

// mark puts the mark on the units. They must exist.
func (m unitMap) mark(units UnitSet, mark rune) {
	for _, unit := range units {
		m[unit] = mark
	}
}

// resized returns the map of a GPU with another number of units. Held units stay, even if the
// GPU no longer has them: their tasks still run.
func (m unitMap) resized(units int) unitMap {
	m = slices.Clone(m)
	for len(m) > units && m[len(m)-1] == free {
		m = m[:len(m)-1]
	}
	for len(m) < units {
		m = append(m, free)
	}
	return m
}

// MarshalText implements encoding.TextMarshaler.
func (m unitMap) MarshalText() ([]byte, error) { return []byte(string(m)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *unitMap) UnmarshalText(text []byte) error {
	if units := utf8.RuneCount(text); units > maxUnits {
		return fmt.Errorf("unit map of %d units, want at most %d", units, maxUnits)
	}
	if bytes.ContainsRune(text, utf8.RuneError) {
		return errors.New("unit map is not valid UTF-8")
	}
	*m = unitMap(string(text))
	return nil
}
