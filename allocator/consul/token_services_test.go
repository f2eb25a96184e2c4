// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
)

// A token is replaced and the old one deleted, as Vault does before a token
// expires: claims, releases, the lease and watches of the table keep working.
func TestConsul_token_is_renewed(t *testing.T) {
	t.Parallel()
	const management = "11111111-2222-4333-8444-888888888888"
	agent := consultest.Start(t, consultest.ACL(management))
	agent.Ready(t, management)
	client := agent.Client(t, management)
	_, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{
		Name: "plugins", Rules: `key_prefix "gpu-mem/" { policy = "write" } session_prefix "" { policy = "write" }`,
	}, nil)
	must.NoError(t, err)
	newToken := func() *api.ACLToken {
		token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{Name: "plugins"}}}, nil)
		must.NoError(t, err)
		return token
	}
	file, got := filepath.Join(t.TempDir(), "token"), &notices{}
	first := newToken()
	writeToken(t, file, first.SecretID)
	store, err := consul.New(consul.Config{Address: agent.Address, TokenFile: file, Notify: got.add})
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	before := newTenant(store, "before")
	must.NoError(t, before.claim(t.Context()))
	must.NoError(t, store.Lease(t.Context(), leased, []byte("{}"), allocator.LeaseTime))
	session := sessionOf(t, client)

	_, version, err := store.Watch(t.Context(), 0)
	must.NoError(t, err)
	followed := make(chan error, 1)
	go func() {
		_, _, err := store.Watch(t.Context(), version) // begins with the first token
		followed <- err
	}()

	second := newToken()
	writeToken(t, file, second.SecretID)
	_, err = client.ACL().TokenDelete(first.AccessorID, nil)
	must.NoError(t, err)

	must.NoError(t, store.Lease(t.Context(), leased, []byte("{}"), allocator.LeaseTime))
	must.Eq(t, session.ID, sessionOf(t, client).ID)
	must.NoError(t, before.release(t.Context()))
	must.NoError(t, newTenant(store, "after").claim(t.Context()))
	must.NoError(t, <-followed)
	must.NoError(t, allocator.NewTable(store).Writable(t.Context()))
	jobs, err := holders(t.Context(), store)
	must.NoError(t, err)
	must.Eq(t, []string{"after"}, jobs)
	must.Eq(t, []string{"using the new Consul token in " + file}, got.list())
	for _, token := range []*api.ACLToken{first, second} {
		must.StrNotContains(t, got.list()[0], token.SecretID)
	}
}
