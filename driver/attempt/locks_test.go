// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"context"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// A loop leaves alone what a start or a task keeps, and waits for another loop.
func TestCustody(t *testing.T) {
	t.Parallel()
	c := newLocks()
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	must.NoError(t, c.Lock(t.Context(), "x"))
	must.True(t, c.IsKept("x"))
	must.False(t, c.LockBriefly(t.Context(), "x"))
	must.ErrorIs(t, c.Lock(gone, "x"), context.Canceled)
	c.Unlock("x")
	must.False(t, c.IsKept("x"))

	must.True(t, c.LockBriefly(t.Context(), "x"))
	must.False(t, c.IsKept("x"), must.Sprint("a loop looks at it only"))
	must.False(t, c.LockBriefly(gone, "x"))
	must.ErrorIs(t, c.Lock(gone, "x"), context.Canceled)
	must.True(t, c.LockBriefly(t.Context(), "y"), must.Sprint("another attempt is free"))

	got := make(chan bool)
	go func() { got <- c.LockBriefly(t.Context(), "x") }()
	select {
	case <-got:
		t.Fatal("two loops look at one attempt")
	case <-time.After(10 * time.Millisecond):
	}
	c.Unlock("x")
	must.True(t, <-got)
}
