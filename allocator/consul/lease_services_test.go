// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
)

const (
	leased = "nodes/host/lease"
	// shortest is the shortest time to live that Consul grants.
	shortest = 10 * time.Second
)

// sessionOf returns the session that holds the lease; nil if there is none.
func sessionOf(t *testing.T, client *api.Client) *api.SessionEntry {
	t.Helper()
	pair, _, err := client.KV().Get("gpu-mem/"+leased, nil)
	must.NoError(t, err)
	if pair == nil {
		return nil
	}
	session, _, err := client.Session().Info(pair.Session, nil)
	must.NoError(t, err)
	return session
}

func leaser(store allocator.Store) *consul.Store { return store.(*consul.Store) }

// A lease depends on time only. When it is lost the key is deleted, watchers of the
// table are notified, and claims stay.
func TestConsul_lease(t *testing.T) {
	t.Parallel()
	agent := startAgent(t)
	client, store := agent.Client(t, ""), open(t, agent, "", "")
	must.NoError(t, newTenant(store, "task").claim(t.Context()))
	must.NoError(t, leaser(store).Lease(t.Context(), leased, []byte("{}"), shortest))
	first := sessionOf(t, client)
	must.NotNil(t, first)
	must.SliceEmpty(t, first.NodeChecks)
	must.SliceEmpty(t, first.ServiceChecks)

	// Another process renews it.
	must.NoError(t, leaser(open(t, agent, "", "")).Lease(t.Context(), leased, []byte("{}"), shortest))
	must.Eq(t, first.ID, sessionOf(t, client).ID)

	// A session that has ended is replaced at once.
	_, err := client.Session().Destroy(first.ID, nil)
	must.NoError(t, err)
	must.Nil(t, sessionOf(t, client))
	eventually(t, func(ctx context.Context) error { return leaser(store).Lease(ctx, leased, []byte("{}"), shortest) })
	must.NotNil(t, sessionOf(t, client))

	// So is a deleted key.
	_, err = client.KV().Delete("gpu-mem/"+leased, nil)
	must.NoError(t, err)
	eventually(t, func(ctx context.Context) error { return leaser(store).Lease(ctx, leased, []byte("{}"), shortest) })

	eventually(t, func(ctx context.Context) error { // it is not renewed
		entries, _, err := store.Watch(ctx, 0)
		for _, entry := range entries {
			if entry.Key == leased {
				return errors.New("the lease is still there")
			}
		}
		return err
	})
	jobs, err := holders(t.Context(), store)
	must.NoError(t, err)
	must.Eq(t, []string{"task"}, jobs)
}

// An election that is shorter than the lease costs nothing.
func TestCluster_election_loses_no_lease(t *testing.T) {
	t.Parallel()
	cluster := consultest.StartThree(t)
	leader := cluster.Leader(t)
	other := cluster.Servers[(leader+1)%3]
	store, client := open(t, other, "", ""), other.Client(t, "")
	must.NoError(t, leaser(store).Lease(t.Context(), leased, []byte("{}"), allocator.LeaseTime))
	before := sessionOf(t, client)
	cluster.Servers[leader].Kill()
	eventually(t, func(ctx context.Context) error {
		return leaser(store).Lease(ctx, leased, []byte("{}"), allocator.LeaseTime)
	})
	must.Eq(t, before.ID, sessionOf(t, client).ID)
}

// The error of a token without the permission for sessions names the permission.
func TestConsul_lease_denied(t *testing.T) {
	t.Parallel()
	const management = "11111111-2222-4333-8444-666666666666"
	agent := consultest.Start(t, consultest.ACL(management))
	agent.Ready(t, management)
	client := agent.Client(t, management)
	_, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: "keys", Rules: `key_prefix "gpu-mem/" { policy = "write" }`}, nil)
	must.NoError(t, err)
	token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: "keys"}}}, nil)
	must.NoError(t, err)
	err = leaser(open(t, agent, token.SecretID, "")).Lease(t.Context(), leased, []byte("{}"), shortest)
	must.ErrorIs(t, err, allocator.ErrDenied)
	must.ErrorContains(t, err, "session_prefix")
	must.StrNotContains(t, err.Error(), token.SecretID)
}

// A token that has a lease loses the permission for sessions.
func TestConsul_lease_revoked(t *testing.T) {
	t.Parallel()
	const management = "11111111-2222-4333-8444-777777777777"
	agent := consultest.Start(t, consultest.ACL(management))
	agent.Ready(t, management)
	client := agent.Client(t, management)
	const keys = `key_prefix "gpu-mem/" { policy = "write" }`
	policy, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: "plugin", Rules: keys + ` session_prefix "" { policy = "write" }`}, nil)
	must.NoError(t, err)
	token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: "plugin"}}}, nil)
	must.NoError(t, err)
	store := leaser(open(t, agent, token.SecretID, ""))
	must.NoError(t, store.Lease(t.Context(), leased, []byte("{}"), allocator.LeaseTime))

	policy.Rules = keys
	_, _, err = client.ACL().PolicyUpdate(policy, nil)
	must.NoError(t, err)
	err = store.Lease(t.Context(), leased, []byte("{}"), allocator.LeaseTime)
	must.ErrorIs(t, err, allocator.ErrDenied)
	must.ErrorContains(t, err, "session_prefix")
	must.StrNotContains(t, err.Error(), "does not answer")
}
