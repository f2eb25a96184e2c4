// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package pause_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/pause"
)

func TestFor(t *testing.T) {
	t.Parallel()
	must.NoError(t, pause.For(t.Context(), time.Millisecond))

	reason := errors.New("the plugin stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	must.ErrorIs(t, pause.For(ctx, time.Hour), reason)
}
