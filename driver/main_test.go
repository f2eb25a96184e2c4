// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"nomad-gpu-mem/driver/logpipe"
)

// The test binary stands in for the program: it is a holder of log pipes when
// started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == logpipe.ProcessName {
		code := 0
		if err := logpipe.Serve(os.Args[1:]); err != nil {
			code = 1
		}
		syscall.Exit(code) // os.Exit would sleep a second first, for the race detector
	}
	goleak.VerifyTestMain(m)
}
