// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// processFaults are faults of Nomad's agents and the two plugins. The plugins of the spare
// node are never ended, so that their use can be followed over the whole time.
var processFaults = []fault{
	{"driver plugin killed", 6, killPlugin(driverPlugin), 0},
	{"device plugin killed", 4, killPlugin(devicePlugin), 0},
	{"driver plugin paused", 3, pausePlugin(driverPlugin), 2 * time.Second},
	{"device plugin paused", 2, pausePlugin(devicePlugin), 2 * time.Second},
	{"agent killed", 5, endAgent(syscall.SIGKILL), 2 * time.Second},
	{"agent stopped", 3, endAgent(syscall.SIGINT), 2 * time.Second},
	{"agent and driver plugin killed", 3, killAgentAndPlugin, 2 * time.Second},
	{"agent paused", 3, pauseAgent, 2 * time.Second},
}

type strike = func(*soak, *rand.Rand) (func() error, error)

// unspared returns a node with plugins that may be ended.
func (s *soak) unspared(random *rand.Rand) *machine { return s.machines[random.IntN(spare)] }

func killPlugin(name string) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		return nil, signalAll(s.plugins(s.unspared(random), name), syscall.SIGKILL)
	}
}

func pausePlugin(name string) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		pids := s.plugins(s.machines[random.IntN(nodes)], name)
		if err := signalAll(pids, syscall.SIGSTOP); err != nil {
			return nil, err
		}
		return func() error { return signalAll(pids, syscall.SIGCONT) }, nil
	}
}

// endAgent ends an agent. A plugin survives if the agent has no time to end it.
func endAgent(signal syscall.Signal) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		return s.endDaemon(s.agent(s.unspared(random)), signal)
	}
}

func killAgentAndPlugin(s *soak, random *rand.Rand) (func() error, error) {
	m := s.unspared(random)
	repair, err := s.endDaemon(s.agent(m), syscall.SIGKILL)
	if err == nil {
		_ = signalAll(s.plugins(m, driverPlugin), syscall.SIGKILL)
	}
	return repair, err
}

func pauseAgent(s *soak, random *rand.Rand) (func() error, error) {
	return pauseDaemon(s.agent(s.machines[random.IntN(nodes)]))
}

// endDaemon ends a daemon; the repair starts it again as it was.
func (s *soak) endDaemon(d daemon, signal syscall.Signal) (func() error, error) {
	life, err := d.life()
	if err != nil {
		return nil, err
	}
	if err := d.end(life, signal); err != nil {
		return nil, err
	}
	return func() error { return s.respawn(d, life) }, nil
}

func pauseDaemon(d daemon) (func() error, error) {
	life, err := d.life()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(life.pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	// Another fault may have ended it meanwhile.
	return func() error { return signalAll([]int{life.pid}, syscall.SIGCONT) }, nil
}
