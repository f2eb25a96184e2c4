// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Nomad-gpu-mem lets several Nomad tasks share one GPU by its memory.
//
// One program has several roles, and its name decides which: in Nomad's
// plugin_dir it stands as nomad-device-gpu-mem and as nomad-driver-gpu-docker,
// since a process can serve one type of plugin only; under any other name it is
// the command line. The driver also starts it by itself, to hold log pipes open.
// Where to look next:
//
//   - role.go: the choice of the role; args.go: what an agent may say to the driver
//   - wiring.go: the one place where the parts are put together
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

// run plays the role that the program was started for and returns the exit
// code.
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

// endings are the signals at which a command ends in good order: `claim` gives back
// what it holds, also when its terminal is gone. What nohup has set aside stays so.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}
