// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// oddValue is an invalid value of a claims key.
type oddValue struct {
	What  string
	Value string
	Bytes []byte
	Good  bool
}

func oddValues(t testing.TB) []oddValue {
	t.Helper()
	text, err := os.ReadFile("testdata/odd-values.json")
	must.NoError(t, err)
	var values []oddValue
	must.NoError(t, json.Unmarshal(text, &values))
	for i, value := range values {
		if value.Bytes == nil {
			values[i].Bytes = []byte(value.Value)
		}
	}
	return values
}

// A value that cannot be read stops claims on its GPU, says which key it is,
// stays as it is, and harms no other GPU.
func TestTable_odd_values(t *testing.T) {
	t.Parallel()
	for _, odd := range oddValues(t) {
		t.Run(odd.What, func(t *testing.T) {
			t.Parallel()
			ctx, store := t.Context(), storetest.NewMemory()
			table := allocator.NewTable(store)
			key := allocator.ClaimsKey("GPU-1")
			must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: key, Value: odd.Bytes}}))

			both := []allocator.Booking{bookingOf("GPU-1", 4), bookingOf("GPU-2", 0)}
			err := table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, both)
			snapshot, snapshotErr := table.Snapshot(ctx)
			must.NoError(t, snapshotErr)
			if odd.Good {
				must.NoError(t, err)
				must.SliceEmpty(t, snapshot.Problems)
				return
			}
			must.ErrorIs(t, err, allocator.ErrUnreadable)
			must.ErrorContains(t, err, key)
			must.ErrorIs(t, table.Release(ctx, ownerOf("alloc-1"), "start-1", []allocator.GPUID{"GPU-1"}), allocator.ErrUnreadable)
			must.Len(t, 1, snapshot.Problems)
			must.Eq(t, key, snapshot.Problems[0].Key)
			must.ErrorIs(t, snapshot.Problems[0].Err, allocator.ErrUnreadable)
			must.Nil(t, snapshot.GPUs[0].Ledger)
			must.SliceEmpty(t, snapshot.GPUs[0].Claims())

			must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, both[1:]))
			entry, err := store.Get(ctx, key)
			must.NoError(t, err)
			must.Eq(t, odd.Bytes, entry.Value)
		})
	}
}

// Another version may have written fields that this one does not know, and may
// spell them almost like those that it knows.
func TestLedger_keeps_unknown_fields(t *testing.T) {
	t.Parallel()
	l, err := allocator.DecodeLedger([]byte(`{
		"version": 1, "unit_mib": 1024, "units": "ab", "Units": "??", "future": {"z": [1.50, "<"], "a": null},
		"claims": {
			"a": {"alloc": "1", "task": "t", "claimed_at": "2026-01-01T00:00:00Z", "state": "claimed", "State": "odd", "qos": {"class": 12345678901234567890}},
			"b": {"alloc": "2", "task": "t", "claimed_at": "2026-01-01T00:00:00Z", "state": "paused", "attempt": "1"}
		}
	}`))
	must.NoError(t, err)
	must.Eq(t, allocator.Claimed, l.Claims()[0].State)
	must.Eq(t, allocator.ClaimState("paused"), l.Claims()[1].State)
	changed, err := l.Run(allocator.Owner{Alloc: "1", Task: "t"}, "", "container-1", noon)
	must.NoError(t, err)
	must.True(t, changed)
	must.True(t, l.Release(allocator.Owner{Alloc: "2", Task: "t"}, "1"))

	value, err := l.Encode()
	must.NoError(t, err)
	must.StrContains(t, string(value), `1.50`) // numbers are kept as they were written
	must.StrContains(t, string(value), `12345678901234567890`)
	must.EqJSON(t, `{
		"version": 1, "unit_mib": 1024, "units": "a.", "Units": "??", "future": {"z": [1.50, "<"], "a": null},
		"claims": {
			"a": {"namespace": "", "job": "", "group": "", "task": "t", "alloc": "1", "node": "", "node_name": "", "attempt": "",
				"state": "running", "container": "container-1", "claimed_at": "2026-01-01T00:00:00Z", "running_at": "2026-01-02T12:00:00Z",
				"State": "odd", "qos": {"class": 12345678901234567890}}
		}
	}`, string(value))
}

// What can be decoded obeys the rules, and is the same after it was written.
func FuzzDecodeLedger(f *testing.F) {
	for _, odd := range oddValues(f) {
		f.Add(odd.Bytes)
	}
	f.Add([]byte(`{"version":1,"unit_mib":1,"units":"a","ſtate":1,"UNITS":"b","claims":{"a":{"alloc":"1","task":"t","claimed_at":"2026-01-01T00:00:00+14:00","State":{},"ſtate":"x"}}}`))
	f.Add([]byte("{\"version\":1,\"\xff\":1,\"units\":\"\u2028<\",\"unit_mib\":1,\"claims\":{\"<\":{\"alloc\":\"1\",\"task\":\"t\"},\"\u2028\":{\"alloc\":\"\xff\",\"task\":\"t\"}}}"))
	f.Add([]byte(`{"version":1,"unit_mib":1,"units":"a","claims":{"a":{"alloc":"1","task":"t","begun":"2026-01-01T00:00:00.000000001+14:00","Begun":1,"engine":"<"}}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if value == nil {
			value = []byte{}
		}
		l, err := allocator.DecodeLedger(value)
		if err != nil {
			must.ErrorIs(t, err, allocator.ErrUnreadable)
			return
		}
		must.NoError(t, l.Check())
		once, err := l.Encode()
		must.NoError(t, err)
		back, err := allocator.DecodeLedger(once)
		must.NoError(t, err, must.Sprintf("%s\n%s", value, once))
		twice, err := back.Encode()
		must.NoError(t, err)
		must.Eq(t, string(once), string(twice))
		must.Eq(t, l.Claims(), back.Claims(), exported)
	})
}
