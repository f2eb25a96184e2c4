// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"
	"go.uber.org/goleak"
)

// The test binary stands in for the program: it is the process that holds log pipes when
// started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == ProcessName {
		code := 0
		if err := Serve(os.Args[1:]); err != nil {
			code = 1
		}
		syscall.Exit(code) // os.Exit would sleep a second first, for the race detector
	}
	goleak.VerifyTestMain(m)
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	must.Wait(t, wait.InitialSuccess(wait.BoolFunc(ok), wait.Timeout(time.Minute), wait.Gap(5*time.Millisecond)))
}
