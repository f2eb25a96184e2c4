// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestTable_Cordon_and_Uncordon(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.NoError(t, table.PutGPU(ctx, "GPU-1", gpuState()))
	must.NoError(t, table.Claim(ctx, ownerOf("alloc-1"), allocator.Attempt{ID: "start-1"}, []allocator.Booking{bookingOf("GPU-1", 0)}))

	must.NoError(t, table.Cordon(ctx, "GPU-1", "fan is loud"))
	version := versionOf(t, table)
	must.NoError(t, table.Cordon(ctx, "GPU-1", "fan is loud"))
	must.Eq(t, version, versionOf(t, table))
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.Eq(t, "fan is loud", snapshot.GPUs[0].Cordon.Reason)
	must.Eq(t, noon, snapshot.GPUs[0].Cordon.At)
	gpu, err := table.Inspect(ctx, "GPU-1")
	must.NoError(t, err)
	must.Eq(t, "fan is loud", gpu.Cordon.Reason)
	must.Len(t, 1, gpu.Claims())

	must.NoError(t, table.Uncordon(ctx, "GPU-1"))
	must.NoError(t, table.Uncordon(ctx, "GPU-1"))
	entry, err := store.Get(ctx, allocator.CordonKey("GPU-1"))
	must.NoError(t, err)
	must.Eq(t, 0, entry.Version)
	gpu, err = table.Inspect(ctx, "GPU-1")
	must.NoError(t, err)
	must.Nil(t, gpu.Cordon)

	must.ErrorIs(t, table.Cordon(ctx, "", "x"), allocator.ErrInvalid)
}

// The key is a flag: an operator may set it by hand, to any value.
func TestTable_Cordon_by_hand(t *testing.T) {
	t.Parallel()
	for value, reason := range map[string]string{
		"":                           "",
		"power supply":               "power supply",
		"caf\xe9 \xff\xfe":           "caf\uFFFD \uFFFD",
		`{"reason":"rust","by":"x"}`: "rust",
	} {
		table, store := newTable(t)
		key := allocator.CordonKey("GPU-1")
		must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: key, Value: []byte(value)}}))
		gpu, err := table.Inspect(t.Context(), "GPU-1")
		must.NoError(t, err)
		must.NotNil(t, gpu.Cordon)
		must.Eq(t, reason, gpu.Cordon.Reason)
		must.NoError(t, table.Cordon(t.Context(), "GPU-1", "other"))
		must.NoError(t, table.Uncordon(t.Context(), "GPU-1"))
	}
}

func TestTable_Inspect_unreadable_claims(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	key := allocator.ClaimsKey("GPU-1")
	must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: key, Value: []byte("{")}}))
	_, err := table.Inspect(t.Context(), "GPU-1")
	must.ErrorIs(t, err, allocator.ErrUnreadable)
	must.ErrorContains(t, err, key)
}

func TestTable_Cordon_after_a_conflict(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	store.FailApply(allocator.ErrConflict, false)
	must.NoError(t, table.Cordon(t.Context(), "GPU-1", "x"))
	store.FailApply(allocator.ErrConflict, false)
	must.NoError(t, table.Uncordon(t.Context(), "GPU-1"))
}
