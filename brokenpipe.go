// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// outliveAgent keeps this process alive when the agent that started it crashes. Its stderr is
// a pipe to that agent, and Go ends a program that writes to a broken stdout or stderr unless
// it handles SIGPIPE. The next agent reconnects to the process, but does not repair the pipe.
// The signal is handled, not ignored, since child processes would inherit that.
func outliveAgent() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
