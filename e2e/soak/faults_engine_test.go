// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// engineFaults are faults of Docker's daemons. Containers outlive them.
var engineFaults = []fault{
	{"dockerd restarted", 4, endEngine(syscall.SIGTERM), 500 * time.Millisecond},
	{"dockerd killed", 4, endEngine(syscall.SIGKILL), 2 * time.Second},
	{"dockerd paused", 4, pauseEngine, 3 * time.Second},
}

func endEngine(signal syscall.Signal) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		return s.endDaemon(s.machines[random.IntN(nodes)].engine(), signal)
	}
}

func pauseEngine(s *soak, random *rand.Rand) (func() error, error) {
	return pauseDaemon(s.machines[random.IntN(nodes)].engine())
}
