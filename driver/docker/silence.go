// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"nomad-gpu-mem/internal/pause"
)

// timedWriter knows when it was last written to.
type timedWriter struct {
	io.Writer
	last atomic.Pointer[time.Time]
}

func (w *timedWriter) Write(data []byte) (int, error) {
	n, err := w.Writer.Write(data)
	now := time.Now()
	w.last.Store(&now)
	return n, err
}

// awaitSilence waits until nothing was written for the time of silence from now on, at most for the given time: what still runs
// may write for ever.
func (w *timedWriter) awaitSilence(ctx context.Context, silence, most time.Duration) {
	begun := time.Now()
	for since := begun; time.Since(begun) < most; {
		if last := w.last.Load(); last != nil && last.After(since) {
			since = *last
		}
		left := silence - time.Since(since)
		if left <= 0 || pause.For(ctx, left) != nil {
			return
		}
	}
}
