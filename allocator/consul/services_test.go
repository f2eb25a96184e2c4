//go:build services

package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
)

func TestConsul(t *testing.T) {
	t.Parallel()
	operations := 1000
	if testing.Short() {
		operations = 100
	}
	agent := startAgent(t, "")
	var tables atomic.Int64
	newStore := func(t testing.TB) allocator.Store {
		return agent.store(t, "", fmt.Sprintf("tables/%d", tables.Add(1)))
	}
	storetest.Run(t, newStore)
	storetest.RunTable(t, newStore, operations)
}

// What the store lets pass, Consul takes.
func TestConsul_limits(t *testing.T) {
	t.Parallel()
	store := startAgent(t, "").store(t, "", "")

	many := make([]allocator.Write, 64)
	for i := range many {
		many[i] = allocator.Write{Key: fmt.Sprint(i), Value: []byte("1")}
	}
	must.NoError(t, store.Apply(t.Context(), many))

	for size := 393_216; ; size -= 16 {
		must.Positive(t, size)
		err := store.Apply(t.Context(), []allocator.Write{{Key: "large", Value: bytes.Repeat([]byte("x"), size)}})
		if !errors.Is(err, allocator.ErrTooLarge) {
			must.NoError(t, err)
			must.Greater(t, 390_000, size)
			return
		}
	}
}

// No token, a read-only token, a token that is gone and a Consul that is gone
// are four messages, and none of them is an empty table.
func TestConsul_denied(t *testing.T) {
	t.Parallel()
	const management = "11111111-2222-4333-8444-555555555555"
	agent := startAgent(t, management)
	client := agent.client(t, management)
	token := func(rule string) string {
		name := fmt.Sprintf("policy-%d", time.Now().UnixNano())
		_, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rule}, nil)
		must.NoError(t, err)
		token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: name}}}, nil)
		must.NoError(t, err)
		return token.SecretID
	}
	writer := token(`key_prefix "gpu-mem/" { policy = "write" }`)
	reader := token(`key_prefix "gpu-mem/" { policy = "read" }`)
	stranger := token(`key_prefix "elsewhere/" { policy = "write" }`)
	narrow := token(`key_prefix "gpu-mem/nodes/" { policy = "read" }`)

	says := func(secret, call string) string {
		err := calls(agent.store(t, secret, ""))[call](t.Context())
		must.ErrorIs(t, err, allocator.ErrDenied)
		if secret != "" {
			must.StrNotContains(t, err.Error(), secret)
		}
		return err.Error()
	}
	for _, table := range []string{"empty", "with an entry"} {
		if table != "empty" {
			must.NoError(t, calls(agent.store(t, writer, ""))["apply"](t.Context()))
		}
		for _, call := range []string{"get", "watch", "apply"} {
			must.StrContains(t, says("", call), "no token is set", must.Sprint(table, call))
			must.StrContains(t, says(stranger, call), "the token lacks", must.Sprint(table, call))
			must.StrContains(t, says("00000000-dead-4000-8000-000000000000", call), "does not know the token", must.Sprint(table, call))
		}
		must.StrContains(t, says(reader, "apply"), `lacks write on key_prefix "gpu-mem/"`)
		must.NoError(t, calls(agent.store(t, reader, ""))["get"](t.Context()))
		must.NoError(t, calls(agent.store(t, reader, ""))["watch"](t.Context()))
		must.StrContains(t, says(narrow, "watch"), `lacks read on key_prefix "gpu-mem/"`)
	}

	agent.kill()
	for _, call := range calls(agent.store(t, writer, "")) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable)
		must.ErrorContains(t, err, agent.address)
	}
}

// Consul is killed and comes back, twice, while tasks start and end.
func TestConsul_restarts_in_the_middle(t *testing.T) {
	t.Parallel()
	lives := 30
	if testing.Short() {
		lives = 12
	}
	agent := startAgent(t, "")
	store := agent.store(t, "", "")
	restarted := make(chan error, 1)
	go func() { restarted <- agent.restart(t.Context(), store) }()
	storetest.ManyTasks(t, store, lives)
	must.NoError(t, <-restarted)
}

// restart kills the agent and starts it again, twice, whenever the table has
// changed some more.
func (a *agent) restart(ctx context.Context, store allocator.Store) error {
	for range 2 {
		if err := awaitChanges(ctx, store, 40); err != nil {
			return err
		}
		a.kill()
		if err := a.start(); err != nil {
			return err
		}
	}
	return nil
}

func awaitChanges(ctx context.Context, store allocator.Store, changes int) error {
	var version uint64
	for changes > 0 {
		_, now, err := store.Watch(ctx, version)
		switch {
		case err == nil:
			version = now
			changes--
		case errors.Is(err, allocator.ErrUnavailable):
			<-time.After(20 * time.Millisecond)
		default:
			return err
		}
	}
	return nil
}
