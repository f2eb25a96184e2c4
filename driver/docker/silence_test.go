// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// A terminal whose process has ended may have more to say than fits into a fixed time.
func TestSilenceIsAwaited(t *testing.T) {
	t.Parallel()
	w := &timedWriter{Writer: io.Discard}
	written := atomic.Int32{}
	go func() {
		for range 10 {
			_, _ = w.Write([]byte("x"))
			written.Add(1)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	w.awaitSilence(t.Context(), 600*time.Millisecond, time.Minute)
	must.Eq(t, 10, written.Load())
}

func TestSilenceIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	w := &timedWriter{Writer: io.Discard}
	begun := time.Now()
	w.awaitSilence(t.Context(), time.Hour, 0)
	w.awaitSilence(t.Context(), time.Millisecond, time.Hour)
	must.Less(t, time.Hour, time.Since(begun))
}
