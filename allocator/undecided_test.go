// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// silentStore does not answer until its callers give up, and has a name.
type silentStore struct {
	Store
	asked chan struct{}
}

func (s *silentStore) Get(ctx context.Context, _ string) (Entry, error) {
	select {
	case s.asked <- struct{}{}:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return Entry{}, fmt.Errorf("waiting for %s: %w", s, ctx.Err())
}

func (s *silentStore) String() string { return "Consul at 10.0.0.1:8500" }

// A change that waits for another one of its process says which GPU and which store it
// waits for, like the change that waits for the store itself.
func TestTable_change_that_waits_names_the_store(t *testing.T) {
	t.Parallel()
	store := &silentStore{asked: make(chan struct{})}
	table := NewTable(store)
	claim := func(ctx context.Context, unit int) error {
		booking := Booking{GPU: "GPU-1", UnitMiB: 1024, Of: 8, Units: NewUnitSet(unit)}
		return table.Claim(ctx, Owner{Alloc: fmt.Sprint(unit), Task: "t"}, Attempt{ID: "a"}, []Booking{booking})
	}
	leading, stop := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- claim(leading, 0) }()
	<-store.asked
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := claim(impatient, 1)
	must.ErrorIs(t, err, context.DeadlineExceeded)
	must.ErrorContains(t, err, "GPU-1")
	must.ErrorContains(t, err, "Consul at 10.0.0.1:8500")
	stop()
	must.ErrorContains(t, <-first, "Consul at 10.0.0.1:8500")
}

// busyStore rejects every change as a conflict.
type busyStore struct {
	smallStore
	refused context.CancelFunc
}

func (s *busyStore) Apply(context.Context, []Write) error { s.refused(); return ErrConflict }
func (s *busyStore) String() string                       { return "Consul at 10.0.0.1:8500" }

// So does a change that is tried again and again.
func TestTable_change_that_others_get_ahead_of_names_the_store(t *testing.T) {
	t.Parallel()
	bookings := []Booking{
		{GPU: "GPU-1", UnitMiB: 1024, Of: 8, Units: NewUnitSet(1)},
		{GPU: "GPU-2", UnitMiB: 1024, Of: 8, Units: NewUnitSet(1)},
	}
	for count := 1; count <= len(bookings); count++ {
		ctx, giveUp := context.WithCancel(t.Context())
		table := NewTable(&busyStore{refused: giveUp})
		err := table.Claim(ctx, Owner{Alloc: "x", Task: "t"}, Attempt{ID: "a"}, bookings[:count])
		must.ErrorIs(t, err, context.Canceled)
		must.ErrorContains(t, err, "GPU-1")
		must.ErrorContains(t, err, "Consul at 10.0.0.1:8500")
	}
}
