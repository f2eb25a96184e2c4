// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoenig/test/must"
)

// The last output of a terminal whose process has ended can take longer than any fixed time. The clock is synctest's, so the
// load of the machine does not matter.
func TestSilenceIsAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	})
}

func TestSilenceIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	w := &timedWriter{Writer: io.Discard}
	begun := time.Now()
	w.awaitSilence(t.Context(), time.Hour, 0)
	w.awaitSilence(t.Context(), time.Millisecond, time.Hour)
	must.Less(t, time.Hour, time.Since(begun))
}
