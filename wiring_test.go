// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/tableconfig"
)

func TestOpenTable(t *testing.T) {
	t.Parallel()
	config := tableconfig.Default()
	config.Store, config.Path = tableconfig.StoreFile, filepath.Join(t.TempDir(), "table.json")
	table, err := openTable(config, nil)
	must.NoError(t, err)
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.GPUs)
	must.NoError(t, table.Close())

	table, err = openTable(tableconfig.Default(), nil) // Consul is not queried yet
	must.NoError(t, err)
	must.NoError(t, table.Close())
}

// The device plugin tries again as long as it has no table at all.
func TestOpenDeviceTableFails(t *testing.T) {
	t.Parallel()
	config := tableconfig.Default()
	config.Address = "unknown://%"
	table, err := openDeviceTable(config, hclog.NewNullLogger())
	must.Error(t, err)
	must.True(t, table == nil)
}

// Every option of the table block reaches Consul's client.
func TestOpenTableUsesTheWholeBlock(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked *http.Request
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = r
		w.WriteHeader(http.StatusNotFound)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	own := server.TLS.Certificates[0] // any will do
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	must.NoError(t, err)
	token := filepath.Join(dir, "token")
	must.NoError(t, os.WriteFile(token, []byte("from a file"), 0o600))

	config := tableconfig.Default()
	config.Address, config.Prefix, config.TokenFile = server.URL, "team/gpu", token
	config.CAFile = write("ca.pem", "CERTIFICATE", server.Certificate().Raw)
	config.CertFile, config.KeyFile = write("cert.pem", "CERTIFICATE", own.Certificate[0]), write("key.pem", "PRIVATE KEY", key)
	config.TLSServerName = "example.com"
	config.Namespace, config.Partition, config.Datacenter = "team-a", "gpus", "dc2"
	must.NoError(t, config.Validate())
	table, err := openTable(config, nil)
	must.NoError(t, err)
	must.NoError(t, table.Reach(t.Context()))
	must.NoError(t, table.Close())

	mu.Lock()
	defer mu.Unlock()
	must.StrHasPrefix(t, "/v1/kv/team/gpu/", asked.URL.Path)
	must.Eq(t, "from a file", asked.Header.Get("X-Consul-Token"))
	must.Eq(t, "example.com", asked.TLS.ServerName)
	must.Len(t, 1, asked.TLS.PeerCertificates)
	for key, want := range map[string]string{"ns": "team-a", "partition": "gpus", "dc": "dc2"} {
		must.Eq(t, want, asked.URL.Query().Get(key))
	}
}
