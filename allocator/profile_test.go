// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func resnet() allocator.Profile {
	return allocator.Profile{BaseMiB: 1500, MiBPer: map[string]float64{"batch": 120.5}, MinMiB: 2048, MaxMiB: 24576}
}

func TestTable_profiles(t *testing.T) {
	t.Parallel()
	table, _ := newTable(t)
	ctx := t.Context()
	_, err := table.Profile(ctx, "resnet50")
	must.ErrorIs(t, err, allocator.ErrNoProfile)
	must.ErrorIs(t, table.DeleteProfile(ctx, "resnet50"), allocator.ErrNoProfile)

	must.NoError(t, table.PutProfile(ctx, "resnet50", resnet()))
	must.NoError(t, table.PutProfile(ctx, "team a/llama", allocator.Profile{BaseMiB: 9000}))
	got, err := table.Profile(ctx, "resnet50")
	must.NoError(t, err)
	want := resnet()
	want.UpdatedAt = noon
	must.Eq(t, want, got)
	all, problems, err := table.Profiles(ctx)
	must.NoError(t, err)
	must.SliceEmpty(t, problems)
	must.MapContainsKeys(t, all, []string{"resnet50", "team a/llama"})

	first := versionOf(t, table)
	must.NoError(t, table.PutProfile(ctx, "resnet50", resnet()))
	must.Eq(t, first, versionOf(t, table)) // nothing new, nothing written
	must.NoError(t, table.DeleteProfile(ctx, "resnet50"))
	all, _, err = table.Profiles(ctx)
	must.NoError(t, err)
	must.MapLen(t, 1, all)
}

func TestTable_profiles_keep_what_they_do_not_know(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	key := allocator.ProfileKey("resnet50")
	must.NoError(t, store.Apply(t.Context(), []allocator.Write{
		{Key: key, Value: []byte(`{"base_mib":1,"fitted":{"on":"A10"}}`)},
	}))
	must.NoError(t, table.PutProfile(t.Context(), "resnet50", allocator.Profile{BaseMiB: 2}))
	entry, err := store.Get(t.Context(), key)
	must.NoError(t, err)
	must.EqJSON(t, `{"schema":1,"base_mib":2,"fitted":{"on":"A10"},"updated_at":"2026-01-02T12:00:00Z"}`, string(entry.Value))
}

func TestTable_profiles_refuse(t *testing.T) {
	t.Parallel()
	table, store := newTable(t)
	ctx := t.Context()
	must.ErrorIs(t, table.PutProfile(ctx, "", resnet()), allocator.ErrInvalid)
	must.ErrorIs(t, table.PutProfile(ctx, "empty", allocator.Profile{}), allocator.ErrInvalid)

	must.NoError(t, store.Apply(ctx, []allocator.Write{{Key: allocator.ProfileKey("odd"), Value: []byte(`{"base_mib":"4 GiB"}`)}}))
	_, err := table.Profile(ctx, "odd")
	must.ErrorIs(t, err, allocator.ErrUnreadable)
	must.ErrorIs(t, table.PutProfile(ctx, "odd", resnet()), allocator.ErrUnreadable)
	_, problems, err := table.Profiles(ctx)
	must.NoError(t, err)
	must.Len(t, 1, problems)
	must.Eq(t, "profiles/odd", problems[0].Key)
	snapshot, err := table.Snapshot(ctx)
	must.NoError(t, err)
	must.Eq(t, "profiles/odd", snapshot.Problems[0].Key)
	must.NoError(t, table.DeleteProfile(ctx, "odd")) // as an operator does

	store.FailApply(allocator.ErrConflict, false)
	must.NoError(t, table.PutProfile(ctx, "resnet50", resnet()))
	store.FailApply(allocator.ErrConflict, false)
	must.NoError(t, table.DeleteProfile(ctx, "resnet50"))
}
