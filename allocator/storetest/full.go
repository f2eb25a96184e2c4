// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// FullUnits are the units of a GPU of 141 GiB in units of 256 MiB.
const FullUnits = 564

// FullLedger is the value of a GPU's ledger on which each of FullUnits units is a claim
// of its own: of a task of a job, a group and a namespace with that name, with every
// field at its longest, and with as much of a later version as there is room for.
func FullLedger(t testing.TB, gpu allocator.GPUID, name string) []byte {
	t.Helper()
	l, err := allocator.DecodeLedger(nil)
	must.NoError(t, err)
	at := time.Date(2026, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	for unit := range FullUnits {
		owner := allocator.Owner{
			Namespace: name, Job: name, Group: name, Task: strings.Repeat("t", 24), NodeName: allocator.NodeName(name),
			Alloc: fmt.Sprintf("%08d-0000-4000-8000-000000000000", unit), Node: "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c",
		}
		attempt := allocator.Attempt{
			ID: owner.Alloc + "/" + owner.Task + "/7aa3c0de", Begun: at, Engine: "3f0c7d52-1e0b-4c4f-9f0e-6a1b2c3d4e5f",
		}
		units := allocator.NewUnitSet(unit)
		_, err := l.Claim(owner, attempt, allocator.Booking{GPU: gpu, UnitMiB: 256, Of: FullUnits, Units: units}, at.Truncate(time.Millisecond))
		must.NoError(t, err)
		_, err = l.Run(owner, attempt.ID, strings.Repeat("f", 64), at.Truncate(time.Millisecond))
		must.NoError(t, err)
		l.Stuck(owner, attempt.ID, at.Truncate(time.Millisecond))
	}
	for mark, claim := range l.Marks {
		must.NoError(t, json.Unmarshal([]byte(`{"of_a_later_version":"12345678901234567890"}`), &claim))
		l.Marks[mark] = claim
	}
	value, err := l.Encode()
	must.NoError(t, err)
	return value
}
