// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"encoding/json"
	"testing"

	"github.com/shoenig/test/must"
)

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
