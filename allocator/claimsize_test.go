// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

// Every unit of a GPU of 141 GiB in units of 256 MiB may be a claim of its own, with all
// that a claim can have, whatever the names are that job authors think of.
func TestLedger_has_room_for_the_worst_claims(t *testing.T) {
	t.Parallel()
	for what, name := range worstNames() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			value := storetest.FullLedger(t, "GPU-1", name)
			t.Logf("%d bytes", len(value))
			must.LessEq(t, 380<<10, len(value))
			l, err := allocator.DecodeLedger(value)
			must.NoError(t, err)
			must.Len(t, storetest.FullUnits, l.Claims())
		})
	}
}

func worstNames() map[string]string {
	return map[string]string{
		"HTML":               strings.Repeat("<", 65_400),
		"control characters": strings.Repeat("\x01", 200),
		"not UTF-8":          strings.Repeat("\xff", 200),
		"12 bytes":           "twelve-bytes",
	}
}

// Names stay whole where there is room.
func TestLedger_keeps_names(t *testing.T) {
	t.Parallel()
	owner := ownerOf("5e2a1c1e-3b1d-4a35-9a51-3d0a4c5b6f70")
	owner.Node, owner.NodeName = "9c7d3a10-66b2-4b2b-8f7a-0d1e2f3a4b5c", "ip-10-0-1-23"
	owner.Namespace, owner.Job, owner.Group, owner.Task = "default", "llm-chat-large-production", "inference-server", "model"
	attempt := allocator.Attempt{ID: owner.Alloc + "/model/7aa3c0de", Begun: noon}
	claimed := func(o allocator.Owner, units int) allocator.Owner {
		l := emptyLedger(t)
		b := allocator.Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 24}
		for unit := range units {
			b.Units = append(b.Units, unit)
		}
		_, err := l.Claim(o, attempt, b, noon)
		must.NoError(t, err)
		return decoded(t, l).Claims()[0].Owner
	}
	must.Eq(t, owner, claimed(owner, 1))
	owner.Job = strings.Repeat("j", 128)
	must.Eq(t, owner, claimed(owner, 2))
	owner.Job += "j"
	got := claimed(owner, 24)
	must.StrHasPrefix(t, strings.Repeat("j", 100), got.Job)
	must.Less(t, 129, len(got.Job))
	must.True(t, got.IsOf(owner.Namespace, owner.Job))
	must.False(t, got.IsOf(owner.Namespace, owner.Job+"j"))
	must.True(t, got.IsOn(owner.NodeName))
	got.Job = owner.Job
	must.Eq(t, owner, got)
}

// A task with a name too long for its few units is rejected, and no other.
func TestLedger_task_names_that_are_too_long(t *testing.T) {
	t.Parallel()
	claim := func(task string, units int) error {
		owner := ownerOf("5e2a1c1e-3b1d-4a35-9a51-3d0a4c5b6f70")
		owner.Task = task
		attempt := allocator.Attempt{ID: owner.Alloc + "/" + task + "/7aa3c0de", Begun: noon}
		b := allocator.Booking{GPU: "GPU-1", UnitMiB: 256, Of: storetest.FullUnits}
		for unit := range units {
			b.Units = append(b.Units, unit)
		}
		_, err := emptyLedger(t).Claim(owner, attempt, b, noon)
		return err
	}
	must.NoError(t, claim(strings.Repeat("t", 45), 1))
	err := claim(strings.Repeat("t", 255), 1)
	must.ErrorIs(t, err, allocator.ErrTooLarge)
	must.ErrorContains(t, err, "255 bytes")
	must.ErrorContains(t, err, "GPU-1")
	must.NoError(t, claim(strings.Repeat("t", 255), 2))
}

// A task consumes its reservation, also if their names had to be shortened.
func TestReservation_of_long_names(t *testing.T) {
	t.Parallel()
	table, ctx := allocator.NewTable(storetest.NewMemory()), t.Context()
	task := ownerOf("alloc-1")
	task.Job = strings.Repeat("long ", 100)
	planned, other := task, task
	planned.Alloc, other.Job = "plan-1", task.Job+"other"
	must.NoError(t, table.Reserve(ctx, planned, time.Hour, []allocator.UnitRequest{{GPU: "GPU-1", UnitMiB: 1024, TotalUnits: 8, Count: 1}}))
	must.NoError(t, table.Claim(ctx, other, allocator.Attempt{ID: "1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))
	must.Len(t, 2, claimsIn(t, table))
	must.NoError(t, table.Release(ctx, other, "1", []allocator.GPUID{"GPU-1"}))
	must.NoError(t, table.Claim(ctx, task, allocator.Attempt{ID: "1"}, []allocator.Booking{bookingOf("GPU-1", 0, 1)}))
	must.Len(t, 1, claimsIn(t, table))
	must.NoError(t, table.Claim(ctx, task, allocator.Attempt{ID: "1"}, []allocator.Booking{bookingOf("GPU-1", 0, 1)}))
	must.NoError(t, table.Release(ctx, task, "1", []allocator.GPUID{"GPU-1"}))
	must.SliceEmpty(t, claimsIn(t, table))
}
