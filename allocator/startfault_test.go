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

// A GPU rests after three starts in a row that failed for the node's fault, longer after
// each further one, and is offered again by itself or once a container has run.
func TestStartFaults(t *testing.T) {
	t.Parallel()
	const gpu = allocator.GPUID("GPU-1")
	now := noon
	table := allocator.NewTable(storetest.NewMemory(), allocator.WithClock(func() time.Time { return now }))
	rest := func(at time.Time) string {
		t.Helper()
		found, err := table.Inspect(t.Context(), gpu)
		must.NoError(t, err)
		return found.Ledger.StartFaults.Rest(at)
	}
	fail := func() {
		t.Helper()
		must.NoError(t, table.StartFailed(t.Context(), []allocator.GPUID{gpu}, "load nvidia-uvm"))
	}
	must.Eq(t, "", rest(now))
	fail()
	fail()
	must.Eq(t, "", rest(now), must.Sprint("it may have been an upgrade"))
	fail()
	must.StrContains(t, rest(now), "the last 3 starts of tasks failed, since the node was not ready: load nvidia-uvm")
	must.NotEq(t, "", rest(now.Add(5*time.Minute-time.Second)))
	must.Eq(t, "", rest(now.Add(5*time.Minute)))

	now = now.Add(6 * time.Minute)
	fail()
	must.NotEq(t, "", rest(now.Add(9*time.Minute)))
	must.Eq(t, "", rest(now.Add(10*time.Minute)))
	for range 100 {
		fail()
	}
	must.NotEq(t, "", rest(now.Add(59*time.Minute)))
	must.Eq(t, "", rest(now.Add(time.Hour)))
	must.Eq(t, "", rest(now.Add(-time.Hour)), must.Sprint("a clock was wrong"))

	must.NoError(t, table.Claim(t.Context(), ownerOf("a"), allocator.Attempt{ID: "1"}, []allocator.Booking{bookingOf(gpu, 0)}))
	must.NotEq(t, "", rest(now))
	must.NoError(t, table.Running(t.Context(), ownerOf("a"), "1", "container", []allocator.GPUID{gpu}))
	must.Eq(t, "", rest(now))
	fail()
	fail()
	now = now.Add(3 * time.Hour)
	fail()
	must.Eq(t, "", rest(now), must.Sprint("what was long ago does not count"))
}

// The reason is bounded, so that the claims have room.
func TestStartFaults_are_small(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	must.NoError(t, table.StartFailed(t.Context(), []allocator.GPUID{"GPU-1"}, strings.Repeat("<\"\xff\n", 4000)))
	entry, err := store.Get(t.Context(), allocator.ClaimsKey("GPU-1"))
	must.NoError(t, err)
	must.Less(t, 450, len(entry.Value), must.Sprint(string(entry.Value)))
}
