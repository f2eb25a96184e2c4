// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package consul_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/allocator/consul/consultest"
	"nomad-gpu-mem/allocator/storetest"
)

// authority signs certificates. Its own is in a file.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.file, _, a.key = a.sign(t, name, a.cert)
	return a
}

// issue returns the files of a certificate for loopback and of its key.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile, _ = a.sign(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return certFile, keyFile
}

func (a *authority) sign(t *testing.T, name string, cert *x509.Certificate) (certFile, keyFile string, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.NoError(t, err)
	signer := a.key
	if signer == nil { // the authority's own
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, signer)
	must.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	must.NoError(t, err)
	write := func(kind, suffix string, bytes []byte) string {
		file := filepath.Join(a.dir, name+suffix)
		must.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
		return file
	}
	return write("CERTIFICATE", ".pem", der), write("EC PRIVATE KEY", "-key.pem", secret), key
}

// The table over HTTPS, to servers that want a certificate of their clients.
// All of it comes from the variables that every client of Consul reads.
func TestConsul_TLS(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue(t, "server")
	agent := consultest.StartTLS(t, ours.file, cert, key)

	clientCert, clientKey := ours.issue(t, "client")
	t.Setenv("CONSUL_HTTP_SSL", "true")
	t.Setenv("CONSUL_CACERT", ours.file)
	t.Setenv("CONSUL_CLIENT_CERT", clientCert)
	t.Setenv("CONSUL_CLIENT_KEY", clientKey)
	agent.Ready(t, "")
	storetest.ManyTasks(t, open(t, agent, "", ""), 2)

	t.Setenv("CONSUL_CACERT", theirs.file)
	for name, call := range calls(open(t, agent, "", "")) {
		err := call(t.Context())
		must.ErrorIs(t, err, allocator.ErrUnavailable, must.Sprint(name))
		must.ErrorContains(t, err, "x509")
	}
	t.Setenv("CONSUL_CACERT", ours.file)
	t.Setenv("CONSUL_CLIENT_CERT", "")
	t.Setenv("CONSUL_CLIENT_KEY", "")
	for name, call := range calls(open(t, agent, "", "")) {
		must.ErrorIs(t, call(t.Context()), allocator.ErrUnavailable, must.Sprint(name))
	}
}

// The same from the configuration alone. The client's certificate is read for
// each connection, so a renewed one is used.
func TestConsul_TLS_from_the_configuration(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue(t, "server")
	agent := consultest.StartTLS(t, ours.file, cert, key)
	clientCert, clientKey := theirs.issue(t, "client") // not valid yet
	config := consul.Config{
		Address: "https://" + agent.Address, CAFile: ours.file, CertFile: clientCert, KeyFile: clientKey, TLSServerName: "localhost",
	}
	store, err := consul.New(config)
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, store.Close()) })
	must.ErrorIs(t, calls(store)["get"](t.Context()), allocator.ErrUnavailable)

	newCert, newKey := ours.issue(t, "client")
	must.NoError(t, os.Rename(newCert, clientCert))
	must.NoError(t, os.Rename(newKey, clientKey))
	eventually(t, calls(store)["apply"])

	config.TLSServerName = "elsewhere.example"
	other, err := consul.New(config)
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, other.Close()) })
	must.ErrorContains(t, calls(other)["get"](t.Context()), "elsewhere.example")
}
