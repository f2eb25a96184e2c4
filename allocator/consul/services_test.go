// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul/consultest"
	"nomad-gpu-mem/allocator/storetest"
)

func TestConsul(t *testing.T) {
	t.Parallel()
	operations := 1000
	if testing.Short() {
		operations = 100
	}
	agent := startAgent(t)
	var tables atomic.Int64
	newStore := func(t testing.TB) allocator.Store {
		return open(t, agent, "", fmt.Sprintf("tables/%d", tables.Add(1)))
	}
	storetest.Run(t, newStore)
	storetest.RunTable(t, newStore, operations)
}

// Processes that are killed between any two steps, and lost, repeated and stale
// messages, leave a history that has an order.
func TestConsul_many_processes(t *testing.T) {
	t.Parallel()
	rounds, operations := 5, 150
	if testing.Short() {
		rounds, operations = 1, 60
	}
	agent := startAgent(t)
	for round := range rounds { // with more clients the search for an order may take for ever
		storetest.ProveProcesses(t, fmt.Sprintf("%s proof/%d", agent.Address, round), 4, operations)
	}
}

// Consul accepts what the store accepts.
func TestConsul_limits(t *testing.T) {
	t.Parallel()
	store := open(t, startAgent(t), "", "")

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
	agent := consultest.Start(t, consultest.ACL(management))
	agent.Ready(t, management)
	client := agent.Client(t, management)
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
		err := calls(open(t, agent, secret, ""))[call](t.Context())
		must.ErrorIs(t, err, allocator.ErrDenied)
		if secret != "" {
			must.StrNotContains(t, err.Error(), secret)
		}
		return err.Error()
	}
	for _, table := range []string{"empty", "with an entry"} {
		if table != "empty" {
			must.NoError(t, calls(open(t, agent, writer, ""))["apply"](t.Context()))
		}
		for _, call := range []string{"get", "watch", "apply"} {
			must.StrContains(t, says("", call), "no token is set", must.Sprint(table, call))
			must.StrContains(t, says(stranger, call), "the token lacks", must.Sprint(table, call))
			must.StrContains(t, says("00000000-dead-4000-8000-000000000000", call), "does not know the token", must.Sprint(table, call))
		}
		must.StrContains(t, says(reader, "apply"), `lacks write on key_prefix "gpu-mem/"`)
		must.NoError(t, calls(open(t, agent, reader, ""))["get"](t.Context()))
		must.NoError(t, calls(open(t, agent, reader, ""))["watch"](t.Context()))
		must.StrContains(t, says(narrow, "watch"), `lacks read on key_prefix "gpu-mem/"`)

		// Writable checks the permission without writing.
		must.NoError(t, allocator.NewTable(open(t, agent, writer, "")).Writable(t.Context()))
		must.ErrorIs(t, allocator.NewTable(open(t, agent, reader, "")).Writable(t.Context()), allocator.ErrWriteDenied)
		entries, _, err := open(t, agent, reader, "").Watch(t.Context(), 0)
		must.NoError(t, err)
		must.Eq(t, table != "empty", len(entries) == 1)
	}

	agent.Kill()
	for _, call := range calls(open(t, agent, writer, "")) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable)
		must.ErrorContains(t, err, agent.Address)
	}
}

// Consul is killed and restarted, twice, while tasks start and end.
func TestConsul_restarts_in_the_middle(t *testing.T) {
	t.Parallel()
	lives := 30
	if testing.Short() {
		lives = 12
	}
	agent := startAgent(t)
	store := open(t, agent, "", "")
	restarted := make(chan error, 1)
	go func() { restarted <- restartTwice(t.Context(), agent, store) }()
	storetest.ManyTasks(t, store, lives)
	must.NoError(t, <-restarted)
}

// restartTwice kills the agent and starts it again, twice, whenever the table
// has changed some more.
func restartTwice(ctx context.Context, agent *consultest.Agent, store allocator.Store) error {
	for range 2 {
		if err := awaitChanges(ctx, store, 40); err != nil {
			return err
		}
		agent.Kill()
		if err := agent.Restart(); err != nil {
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

// Two tables in one Consul know nothing of each other, and other programs' keys
// beside them are left alone.
func TestConsul_prefixes(t *testing.T) {
	t.Parallel()
	agent := startAgent(t)
	client := agent.Client(t, "")
	_, err := client.KV().Put(&api.KVPair{Key: "gpu-memory/of/another/program", Value: []byte("x")}, nil)
	must.NoError(t, err)
	one, other := open(t, agent, "", ""), open(t, agent, "", "/teams/vision/gpu-mem/")

	must.NoError(t, newTenant(one, "one").claim(t.Context()))
	must.NoError(t, newTenant(other, "other").claim(t.Context()))
	for store, want := range map[allocator.Store]string{one: "one", other: "other"} {
		jobs, err := holders(t.Context(), store)
		must.NoError(t, err)
		must.Eq(t, []string{want}, jobs)
	}
	keys, _, err := client.KV().Keys("", "", nil)
	must.NoError(t, err)
	must.Eq(t, []string{"gpu-mem/gpus/GPU-contested/claims", "gpu-memory/of/another/program", "ready",
		"teams/vision/gpu-mem/gpus/GPU-contested/claims"}, keys)
}

// One value is unreadable: that GPU accepts no claims and the error says why; the others
// keep working.
func TestConsul_value_edited_by_hand(t *testing.T) {
	t.Parallel()
	agent := startAgent(t)
	store, client := open(t, agent, "", ""), agent.Client(t, "")
	const key = "gpu-mem/gpus/GPU-contested/claims"
	_, err := client.KV().Put(&api.KVPair{Key: key, Value: []byte(`{"version":1,"units":"4 GiB"}`)}, nil)
	must.NoError(t, err)

	err = newTenant(store, "one").claim(t.Context())
	must.ErrorIs(t, err, allocator.ErrUnreadable)
	must.ErrorContains(t, err, "gpus/GPU-contested/claims")
	table := allocator.NewTable(store)
	other := allocator.Booking{GPU: "GPU-other", UnitMiB: 1024, Of: 4, Units: allocator.NewUnitSet(1)}
	must.NoError(t, table.Claim(t.Context(), newTenant(store, "two").owner, allocator.Attempt{ID: "attempt"}, []allocator.Booking{other}))
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Problems)
	must.Len(t, 2, snapshot.GPUs)
	pair, _, err := client.KV().Get(key, nil)
	must.NoError(t, err)
	must.Eq(t, `{"version":1,"units":"4 GiB"}`, string(pair.Value))
}

// Everything is deleted while tasks run: they assert their claims again.
func TestConsul_wiped(t *testing.T) {
	t.Parallel()
	agent := startAgent(t)
	store, client := open(t, agent, "", ""), agent.Client(t, "")
	task := newTenant(store, "task")
	must.NoError(t, task.claim(t.Context()))
	_, err := client.KV().DeleteTree("gpu-mem/", nil)
	must.NoError(t, err)
	jobs, err := holders(t.Context(), store)
	must.NoError(t, err)
	must.SliceEmpty(t, jobs)
	must.NoError(t, task.claim(t.Context()))
	must.ErrorIs(t, newTenant(store, "other").claim(t.Context()), allocator.ErrHeld)
}

// A task on more GPUs than Consul changes at once is refused before anything is
// written, and the error names the limit.
func TestConsul_claims_on_many_GPUs(t *testing.T) {
	t.Parallel()
	store := open(t, startAgent(t), "", "")
	table, owner := allocator.NewTable(store), newTenant(store, "task").owner
	bookings := make([]allocator.Booking, 65)
	for i := range bookings {
		bookings[i] = allocator.Booking{GPU: allocator.GPUID(fmt.Sprintf("GPU-%d", i)), UnitMiB: 1, Of: 1, Units: allocator.NewUnitSet(0)}
	}
	err := table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, bookings)
	must.ErrorIs(t, err, allocator.ErrTooLarge)
	must.ErrorContains(t, err, "transaction of 65 operations, Consul accepts 64")
	jobs, err := holders(t.Context(), store)
	must.NoError(t, err)
	must.SliceEmpty(t, jobs)

	must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, bookings[:64]))
	jobs, err = holders(t.Context(), store)
	must.NoError(t, err)
	must.Len(t, 64, jobs)
}

// Consul accepts the ledger of a GPU on which each unit is a claim with the worst names,
// and whatever else happens to the claims.
func TestConsul_takes_a_full_ledger(t *testing.T) {
	t.Parallel()
	store := open(t, startAgent(t), "", "")
	const gpu = allocator.GPUID("MIG-GPU-5b0c7a1e-1d2c-4b3a-9f8e-7d6c5b4a3928/1/0")
	key := allocator.ClaimsKey(gpu)
	value := storetest.FullLedger(t, gpu, strings.Repeat("\x01", 4096))
	must.NoError(t, store.Apply(t.Context(), []allocator.Write{{Key: key, Value: value}}))
	ledger, err := allocator.DecodeLedger(value)
	must.NoError(t, err)
	table, last := allocator.NewTable(store), ledger.Claims()[storetest.FullUnits-1]
	on := []allocator.GPUID{gpu}
	must.NoError(t, table.Release(t.Context(), last.Owner, last.Attempt, on))
	attempt := allocator.Attempt{ID: last.Attempt, Begun: last.Begun, Engine: last.Engine}
	must.NoError(t, table.Claim(t.Context(), last.Owner, attempt, []allocator.Booking{
		{GPU: gpu, UnitMiB: 256, Of: storetest.FullUnits, Units: last.Units},
	}))
	must.NoError(t, table.Running(t.Context(), last.Owner, last.Attempt, last.Container, on))
	must.NoError(t, table.Stuck(t.Context(), last.Owner, last.Attempt, on))
	found, err := table.Inspect(t.Context(), gpu)
	must.NoError(t, err)
	must.Len(t, storetest.FullUnits, found.Claims())
}

// The policies in docs/consul-kv.md allow what they are for, and no more.
func TestConsul_documented_policies(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/consul-kv.md")
	must.NoError(t, err)
	policies := regexp.MustCompile("(?s)\\*\\*(\\w+)\\*\\*.*?```hcl\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	may := map[string][3]bool{"Plugins": {true, true, true}, "Planners": {true, true, false}, "Readers": {true, false, false}}
	must.Len(t, len(may), policies)

	const management = "11111111-2222-4333-8444-777777777777"
	agent := consultest.Start(t, consultest.ACL(management))
	agent.Ready(t, management)
	client := agent.Client(t, management)
	for _, policy := range policies {
		name, rules := policy[1], policy[2]
		_, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: name, Rules: rules}, nil)
		must.NoError(t, err)
		token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: name}}}, nil)
		must.NoError(t, err)
		store := open(t, agent, token.SecretID, "")
		_, err = allocator.NewTable(store).Snapshot(t.Context())
		must.Eq(t, may[name][0], err == nil, must.Sprint(name, err))
		err = store.Apply(t.Context(), []allocator.Write{{Key: name, Value: []byte("1")}})
		must.Eq(t, may[name][1], err == nil, must.Sprint(name, err))
		err = leaser(store).Lease(t.Context(), leased, []byte("{}"), shortest)
		must.Eq(t, may[name][2], err == nil, must.Sprint(name, err))
	}
}
