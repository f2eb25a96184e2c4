// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// The file returns the bytes of any value unchanged.
func FuzzTable(f *testing.F) {
	for _, value := range []string{"", "null", "{}", ` {"a": 1}`, "\xff", `"<\u2028>"`, `{"a":1e999}`, "1\n", `"` + "\xff" + `"`} {
		f.Add("key", []byte(value))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if value == nil {
			value = []byte{}
		}
		before := newTable()
		written, err := before.after([]allocator.Write{{Key: key, Value: value}})
		must.NoError(t, err)
		text, err := written.encode()
		must.NoError(t, err)
		after, err := decode(text)
		must.NoError(t, err)
		entries := after.all()
		must.Len(t, 1, entries)
		must.Eq(t, value, entries[0].Value)
		must.Eq(t, 2, entries[0].Version)
	})
}
