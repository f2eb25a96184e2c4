// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
)

// startAgent starts a server that accepts writes.
func startAgent(t *testing.T, settings ...consultest.Settings) *consultest.Agent {
	t.Helper()
	agent := consultest.Start(t, settings...)
	agent.Ready(t, "")
	return agent
}

// open opens a table's store in the server and closes it with the test.
func open(t testing.TB, agent *consultest.Agent, token, prefix string) allocator.Store {
	t.Helper()
	store, err := consul.New(consul.Config{Address: agent.Address, Token: token, Prefix: prefix})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	return store
}
