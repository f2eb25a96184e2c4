// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	consulapi "github.com/hashicorp/consul/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/e2e/soak/model"
)

// tableFaults are faults of Consul and of its data.
var tableFaults = []fault{
	{"Consul paused", 5, pauseConsul, 3 * time.Second},
	{"Consul restarted", 3, endConsul(syscall.SIGINT), time.Second},
	{"Consul killed", 3, endConsul(syscall.SIGKILL), 2 * time.Second},
	{"ledger overwritten with nonsense", 5, overwriteLedger("nonsense"), 6 * time.Second},
	{"ledger of a later version", 3, overwriteLedger(`{"version": 99, "units": "??"}`), 6 * time.Second},
}

func pauseConsul(s *soak, _ *rand.Rand) (func() error, error) { return pauseDaemon(s.consulServer()) }

func endConsul(signal syscall.Signal) strike {
	return func(s *soak, _ *rand.Rand) (func() error, error) { return s.endDaemon(s.consulServer(), signal) }
}

// overwriteLedger replaces a GPU's ledger by an invalid value, and later restores it. No
// program may write in between: an unreadable value must not be overwritten.
func overwriteLedger(value string) strike {
	return func(s *soak, random *rand.Rand) (func() error, error) {
		gpu := random.IntN(len(s.gpus.GPUs))
		uuid := s.gpus.GPUs[gpu].UUID
		if !s.mayFail(gpu) {
			return nil, errNothing
		}
		key := "gpu-mem/" + allocator.ClaimsKey(allocator.GPUID(uuid))
		before, err := s.swap(key, strikeTime, func(*consulapi.KVPair) []byte { return []byte(value) })
		if err != nil {
			return nil, err
		}
		return func() error { return s.restoreLedger(uuid, key, value, before) }, nil
	}
}

func (s *soak) restoreLedger(uuid, key, value string, before []byte) error {
	_, err := s.swap(key, repairTime, func(now *consulapi.KVPair) []byte {
		if !bytes.Equal(now.Value, []byte(value)) {
			s.violated(model.Violation{Kind: model.Overwritten, At: time.Now(), Text: fmt.Sprintf(
				"key %s held %q and now holds %.200q", key, value, now.Value)})
		}
		return before
	})
	if err == nil {
		s.observer.repaired(uuid)
	}
	return err
}

// swap replaces a value and returns the previous one. It waits while Consul is down.
func (s *soak) swap(key string, within time.Duration, next func(*consulapi.KVPair) []byte) (before []byte, err error) {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var pair *consulapi.KVPair
		if pair, _, err = s.consul.KV().Get(key, &consulapi.QueryOptions{RequireConsistent: true}); err != nil {
			continue
		}
		if pair == nil {
			return nil, errNothing
		}
		before = pair.Value
		var done bool
		done, _, err = s.consul.KV().CAS(&consulapi.KVPair{Key: key, Value: next(pair), ModifyIndex: pair.ModifyIndex}, nil)
		if err == nil && done {
			return before, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("key %s could not be written within %s", key, within), err)
}

const (
	// strikeTime bounds how long a change waits for Consul, which may be down by another fault.
	strikeTime = 5 * time.Second
	// repairTime bounds a repair in the same way; the other fault is repaired at the same time.
	repairTime = time.Minute
)
