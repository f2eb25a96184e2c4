// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"
)

// Config locates the table. Empty fields default to the environment variables of Consul's
// clients: CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN, CONSUL_CACERT and so on.
type Config struct {
	Address   string // "127.0.0.1:8500", "https://host:8501" or "unix:///path"
	Token     string // ACL token
	TokenFile string // file with the ACL token, read again whenever it changes
	Prefix    string // of all keys; allocator.DefaultPrefix if empty

	// TLS. The server's certificate must be signed by an authority in CAFile, for
	// TLSServerName or, if that is empty, for the address's host. CertFile and KeyFile are
	// this client's certificate.
	CAFile, CertFile, KeyFile, TLSServerName string

	Namespace, Partition string // of Consul Enterprise
	Datacenter           string // the agent's if empty

	// Notify, if not nil, receives messages about the token file for the operator. It must
	// not block.
	Notify func(msg string)
}

// unsentToken keeps Consul's client from reading token files itself: the transport replaces
// it in every request.
const unsentToken = "the transport sets the token"

// client returns the configuration of Consul's client, and the tokens of its
// requests.
func (c Config) client() (*api.Config, *tokens, error) {
	conf := api.DefaultConfig()
	tokens := newTokens(c, conf.Token, conf.TokenFile)
	conf.Token, conf.TokenFile = unsentToken, ""
	if c.Address != "" {
		conf.Address, conf.Scheme = c.Address, schemeOf(c.Address, conf.Scheme)
	}
	conf.Namespace = cmp.Or(c.Namespace, conf.Namespace)
	conf.Partition = cmp.Or(c.Partition, conf.Partition)
	conf.Datacenter = cmp.Or(c.Datacenter, conf.Datacenter)
	for _, own := range []struct {
		name, value string
		target      *string
	}{
		{"ca_file", c.CAFile, &conf.TLSConfig.CAFile},
		{"cert_file", c.CertFile, &conf.TLSConfig.CertFile},
		{"key_file", c.KeyFile, &conf.TLSConfig.KeyFile},
		{"tls_server_name", c.TLSServerName, &conf.TLSConfig.Address},
	} {
		if own.value == "" {
			continue
		}
		if schemeOf(conf.Address, conf.Scheme) != "https" {
			return nil, nil, fmt.Errorf("%s = %q has no effect, since address %q does not begin with https://",
				own.name, own.value, conf.Address)
		}
		*own.target = own.value
	}
	return conf, tokens, nil
}

// renewCertificate makes the transport read the client's certificate for each new
// connection: like tokens, operators replace certificates before they expire.
func (c Config) renewCertificate(transport http.RoundTripper) {
	t, ok := transport.(*http.Transport)
	if c.CertFile == "" || !ok || t.TLSClientConfig == nil {
		return
	}
	t.TLSClientConfig.Certificates = nil
	t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		return &cert, nil
	}
}

// schemeOf returns the protocol of an address, or otherwise if it names none. A Unix socket
// has no TLS.
func schemeOf(address, otherwise string) string {
	scheme, _, found := strings.Cut(address, "://")
	switch {
	case !found:
		return otherwise
	case scheme == "https":
		return "https"
	default:
		return "http"
	}
}
