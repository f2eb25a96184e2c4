// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package keepjson

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/shoenig/test/must"
)

// What the fast look accepts, a decoder accepts too.
func FuzzNames(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1,"b":{"a":[{"x":"\"}"},{"x":2}]}}`, `{"a":1,"a":2}`, `{"a":{"b":1},"c":{"b":1}}`, `[{"a":1},{"a":1}]`,
		`{"\u0061":1,"a":2}`, `{"a":"{\"a\":1,"}`, `{"a":[1,"a",{"a":1}],"b":","}`, `{"`, `}`, `"`, ``, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if distinctNames(data) && json.Valid(data) {
			d := json.NewDecoder(bytes.NewReader(data))
			d.UseNumber()
			must.NoError(t, checkNextNames(d))
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) == nil && members != nil && namesIn(data, func(name []byte) bool { return string(name) == "a" }) {
			delete(members, "a")
			must.MapEmpty(t, members)
		}
	})
}
