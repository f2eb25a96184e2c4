package driver

import (
	"context"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// A loop leaves alone what a start or a task keeps, and waits for another loop.
func TestCustody(t *testing.T) {
	t.Parallel()
	c := newCustody()
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	must.NoError(t, c.take(t.Context(), "x"))
	must.True(t, c.kept("x"))
	must.False(t, c.look(t.Context(), "x"))
	must.ErrorIs(t, c.take(gone, "x"), context.Canceled)
	c.giveUp("x")
	must.False(t, c.kept("x"))

	must.True(t, c.look(t.Context(), "x"))
	must.False(t, c.kept("x"), must.Sprint("a loop looks at it only"))
	must.False(t, c.look(gone, "x"))
	must.ErrorIs(t, c.take(gone, "x"), context.Canceled)
	must.True(t, c.look(t.Context(), "y"), must.Sprint("another attempt is free"))

	got := make(chan bool)
	go func() { got <- c.look(t.Context(), "x") }()
	select {
	case <-got:
		t.Fatal("two loops look at one attempt")
	case <-time.After(10 * time.Millisecond):
	}
	c.giveUp("x")
	must.True(t, <-got)
}
