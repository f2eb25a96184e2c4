// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"testing"
	"unicode/utf8"

	"github.com/shoenig/test/must"
)

func TestNthMark_is_enough_for_every_unit(t *testing.T) {
	t.Parallel()
	all := make(unitMap, 0, maxUnits)
	seen := map[rune]bool{free: true}
	for n := range maxUnits {
		mark := nthMark(n)
		must.False(t, seen[mark])
		must.True(t, utf8.ValidRune(mark))
		seen[mark] = true
		all = append(all, mark)
	}
	text, err := all.MarshalText()
	must.NoError(t, err)
	var back unitMap
	must.NoError(t, back.UnmarshalText(text))
	must.Eq(t, all, back)
	must.Error(t, back.UnmarshalText(append(text, '.')))
}
