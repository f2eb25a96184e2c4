// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/consul"
)

// Operations of a transaction name namespace and partition themselves: Consul
// does not look at the request's.
func TestStore_namespace_partition_datacenter(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var queries []map[string][]string
	var ops []struct{ KV map[string]any }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		queries = append(queries, r.URL.Query())
		if r.URL.Path == "/v1/txn" {
			_ = json.NewDecoder(r.Body).Decode(&ops)
		}
		w.Header().Set("X-Consul-Index", "1")
		switch {
		case r.URL.Path == "/v1/session/create":
			_, _ = w.Write([]byte(`{"ID": "1"}`))
		case r.URL.Query().Has("acquire"):
			_, _ = w.Write([]byte("true"))
		default:
			_, _ = w.Write([]byte("[]"))
		}
	}))
	t.Cleanup(server.Close)
	store, err := consul.New(consul.Config{Address: server.URL, Namespace: "team-a", Partition: "gpus", Datacenter: "dc2"})
	must.NoError(t, err)
	for _, call := range calls(store) {
		must.NoError(t, call(t.Context()))
	}
	must.NoError(t, store.Lease(t.Context(), "nodes/host/lease", []byte("{}"), time.Minute))
	must.NoError(t, store.Close())
	for _, query := range queries {
		must.Eq(t, []string{"team-a"}, query["ns"])
		must.Eq(t, []string{"gpus"}, query["partition"])
		must.Eq(t, []string{"dc2"}, query["dc"])
	}
	must.SliceNotEmpty(t, ops)
	for _, op := range ops {
		must.Eq(t, any("team-a"), op.KV["Namespace"])
		must.Eq(t, any("gpus"), op.KV["Partition"])
	}
}

// What the address says holds, whatever the environment says of TLS.
func TestStore_the_scheme_of_the_address_decides(t *testing.T) {
	t.Setenv("CONSUL_HTTP_SSL", "true")
	plain := httptest.NewServer(status(http.StatusNotFound, ""))
	t.Cleanup(plain.Close)
	socket := filepath.Join(t.TempDir(), "consul.sock")
	listener, err := net.Listen("unix", socket)
	must.NoError(t, err)
	local := &httptest.Server{Listener: listener, Config: &http.Server{Handler: status(http.StatusNotFound, "")}}
	local.Start()
	t.Cleanup(local.Close)
	for _, address := range []string{plain.URL, "unix://" + socket} {
		store, err := consul.New(consul.Config{Address: address})
		must.NoError(t, err)
		must.NoError(t, calls(store)["get"](t.Context()), must.Sprint(address))
		must.NoError(t, store.Close())
	}

	_, err = consul.New(consul.Config{Address: plain.URL, CAFile: "/etc/consul/ca.pem"})
	must.ErrorContains(t, err, "ca_file")
	must.ErrorContains(t, err, "https://")
}
