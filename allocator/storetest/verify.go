// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"strings"
	"testing"

	"nomad-gpu-mem/allocator"
)

// Verify wraps a store and reports to t every write that breaks a rule of the
// table: a ledger that cannot be read back, one that is written over a value
// that cannot be read, or a unit that goes from one owner to another without
// having been free.
func Verify(t testing.TB, store allocator.Store) allocator.Store {
	return &verifier{Store: store, t: t}
}

// verifyCombined is Verify for callers that share a table and do many things at once.
// Their changes are combined, so that one write may release a unit and give it to another.
func verifyCombined(t testing.TB, store allocator.Store) allocator.Store {
	return &verifier{Store: store, t: t, combined: true}
}

type verifier struct {
	allocator.Store
	t        testing.TB
	combined bool
}

// Apply checks the writes once they are made. The value that each replaced is
// known: it is the one of the version that the write names.
func (v *verifier) Apply(ctx context.Context, writes []allocator.Write) error {
	before := map[string]allocator.Entry{}
	for _, write := range writes {
		entry, err := v.Get(ctx, write.Key)
		if err != nil {
			return err
		}
		before[write.Key] = entry
	}
	err := v.Store.Apply(ctx, writes)
	for _, write := range writes {
		old := before[write.Key]
		isLedger := strings.HasPrefix(write.Key, "gpus/") && strings.HasSuffix(write.Key, "/claims")
		if err == nil && isLedger && old.Version == write.Version {
			v.check(write.Key, old.Value, write.Value)
		}
	}
	return err
}

func (v *verifier) check(key string, before, after []byte) {
	if _, err := allocator.DecodeLedger(before); err != nil {
		if after != nil { // an operator may delete it
			v.t.Errorf("key %s: an unreadable value was overwritten", key)
		}
		return
	}
	old := v.holders(key, before)
	for unit, owner := range v.holders(key, after) {
		if last, held := old[unit]; held && !last.Is(owner) && !v.combined {
			v.t.Errorf("key %s: unit %d went from %s to %s without a release", key, unit, last, owner)
		}
	}
}

func (v *verifier) holders(key string, value []byte) map[int]allocator.Owner {
	ledger, err := allocator.DecodeLedger(value)
	if err != nil {
		v.t.Errorf("key %s: %v\n%s", key, err, value)
		return nil
	}
	owners := map[int]allocator.Owner{}
	for _, claim := range ledger.Claims() {
		if claim.State == allocator.Reserved || claim.State == allocator.Requested || !claim.ExpiresAt.IsZero() {
			continue // yields, or expires
		}
		for _, unit := range claim.Units {
			owners[unit] = claim.Owner
		}
	}
	return owners
}
