// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"os"
	"syscall"
	"testing"

	"nomad-gpu-mem/driver/logpipe"
)

// The driver also starts this program to hold log pipes open.
func TestMain(m *testing.M) {
	if os.Args[0] == logpipe.ProcessName {
		code := 0
		if err := logpipe.Serve(os.Args[1:]); err != nil {
			code = 1
		}
		syscall.Exit(code) // os.Exit would sleep a second first, for the race detector
	}
	os.Exit(m.Run())
}
