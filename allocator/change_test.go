// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// smallStore accepts values up to a number of bytes, and has one key.
type smallStore struct {
	Store
	most  int
	entry Entry
}

func (s *smallStore) Get(_ context.Context, key string) (Entry, error) {
	s.entry.Key = key
	return s.entry, nil
}

func (s *smallStore) Apply(_ context.Context, writes []Write) error {
	if len(writes[0].Value) > s.most {
		return fmt.Errorf("%d bytes: %w", len(writes[0].Value), ErrTooLarge)
	}
	s.entry.Value, s.entry.Version = writes[0].Value, s.entry.Version+1
	return nil
}

// A change that is too large fails alone: those that were combined with it are made.
func TestTable_large_change_among_others(t *testing.T) {
	t.Parallel()
	store := &smallStore{most: 4096}
	table := NewTable(store)
	claim := func(unit int, container string) *pendingChange {
		return &pendingChange{decide: func(gpu GPUID, l *Ledger) (bool, error) {
			booking := Booking{GPU: gpu, UnitMiB: 1, Of: 3, Units: NewUnitSet(unit)}
			owner := Owner{Alloc: fmt.Sprint(unit), Task: "t"}
			changed, err := l.Claim(owner, Attempt{ID: "a"}, booking, time.Now())
			if mark, claim, found := l.find(owner); found {
				claim.Container = container
				l.put(mark, claim)
			}
			return changed, err
		}}
	}
	batch := []*pendingChange{claim(0, ""), claim(1, strings.Repeat("x", 4096)), claim(2, "")}
	outcomes := table.changeOne(t.Context(), "GPU-1", batch)
	must.NoError(t, outcomes[0])
	must.ErrorIs(t, outcomes[1], ErrTooLarge)
	must.NoError(t, outcomes[2])
	ledger, err := DecodeLedger(store.entry.Value)
	must.NoError(t, err)
	must.Eq(t, "a.b", string(ledger.Units))
}
