// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

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

// Whatever a state key holds, reading it ends in a state or in an error, and what
// was read is read again from what it is written as.
func FuzzDecodeStates(f *testing.F) {
	for _, text := range []string{`{"node":"a","units":3,"unhealthy":"0-2"}`, `{"name":"a","new":{"x":[1]}}`, `{"Node":"a"}`, `null`, ``, `{`, "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again(t, data, decodeState[GPUState])
		again(t, data, decodeState[NodeState])
		if cordon := decodeCordon(data); cordon != nil {
			_, err := json.Marshal(cordon)
			must.NoError(t, err)
		}
	})
}

func again[T state](t *testing.T, data []byte, decode func([]byte) (T, error)) {
	t.Helper()
	first, err := decode(data)
	if err != nil || data == nil {
		return
	}
	text, err := json.Marshal(first)
	must.NoError(t, err)
	second, err := decode(text)
	must.NoError(t, err)
	same, err := sameJSON(first, second)
	must.NoError(t, err)
	must.True(t, same)
}
