// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Nomad-gpu-mem lets several Nomad tasks share one GPU by its memory.
//
// One program has several roles, selected by the name under which it is started. In
// Nomad's plugin_dir it is installed as nomad-device-gpu-mem and as
// nomad-driver-gpu-docker, since a process can serve only one type of plugin; under
// any other name it is the command line. The driver also starts it to hold log pipes
// open.
// Where to look next:
//
//   - role.go: selects the role; args.go: the driver's arguments in the agent's config
//   - wiring.go: the only place that constructs and connects the parts
//   - brokenpipe.go: keeps the driver alive when its agent crashes
//   - allocator: the rules by which units of GPU memory are claimed
//   - device, driver: the two plugins
//   - internal/cli: the commands
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"nomad-gpu-mem/driver/logpipe"
)

func main() { os.Exit(run(filepath.Base(os.Args[0]), os.Args[1:])) }

// run runs the selected role and returns the exit code.
func run(name string, args []string) int {
	role, err := roleOf(name, startedByNomad(os.Getenv))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	switch role {
	case deviceRole:
		serveDevice()
	case driverRole:
		options, err := driverOptionsOf(args)
		if err != nil {
			fmt.Fprintln(os.Stderr, agentError, err)
			return 1
		}
		serveDriver(options)
	case holderRole:
		if err := logpipe.Serve(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case commandRole:
		ctx, stop := signal.NotifyContext(context.Background(), endings()...)
		defer stop()
		return commands().Run(ctx, args, os.Stdout, os.Stderr)
	}
	return 0
}

// endings are the signals at which a command ends cleanly: `claim` releases its units, also
// when its terminal closes. A SIGHUP that nohup ignores stays ignored.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}
