// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package tableconfig

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*Config)
		says   string // "" if it is fine
	}{
		{"default", func(*Config) {}, ""},
		{"file", func(c *Config) { c.Store = StoreFile }, ""},
		{"unknown store", func(c *Config) { c.Store = "etcd" }, `table.store = "etcd"`},
		{"relative path", func(c *Config) { c.Store, c.Path = StoreFile, "table.json" }, `table.path = "table.json"`},
		{"slash before prefix", func(c *Config) { c.Prefix = "/gpu-mem" }, `table.prefix = "/gpu-mem"`},
		{"prefix that climbs", func(c *Config) { c.Prefix = "teams/../gpu-mem" }, `table.prefix = "teams/../gpu-mem"`},
		{"prefix that stays", func(c *Config) { c.Prefix = "./gpu-mem" }, `table.prefix = "./gpu-mem"`},
		{"prefix with a tab", func(c *Config) { c.Prefix = "gpu\tmem" }, `table.prefix = "gpu\tmem"`},
		{"prefix that is not UTF-8", func(c *Config) { c.Prefix = "gpu\xff" }, `table.prefix = "gpu\xff"`},
		{"prefix with signs", func(c *Config) { c.Prefix = "a b/ü?#%+..c" }, ""},
		{"two tokens", func(c *Config) { c.Token, c.TokenFile = "t", "/run/token" }, "table.token and table.token_file"},
		{"relative token file", func(c *Config) { c.TokenFile = "token" }, `table.token_file = "token"`},
		{"certificate without key", func(c *Config) { c.CertFile = "/c.pem" }, `table.cert_file = "/c.pem"`},
		{"TLS without https", func(c *Config) { c.Address, c.CAFile = "http://consul:8500", "/ca.pem" }, `table.ca_file = "/ca.pem" has no effect`},
		{"TLS over a socket", func(c *Config) { c.Address, c.TLSServerName = "unix:///consul", "consul" }, "table.tls_server_name"},
		{"TLS", func(c *Config) {
			c.Address, c.CAFile, c.CertFile, c.KeyFile = "https://consul:8501", "/ca.pem", "/c.pem", "/k.pem"
			c.TLSServerName, c.TokenFile = "server.dc1.consul", "/run/token"
			c.Namespace, c.Partition, c.Datacenter = "team-a", "gpus", "dc2"
		}, ""},
		{"deep prefix", func(c *Config) { c.Prefix = "teams/ml/gpu-mem" }, ""},
	} {
		c := Default()
		test.change(&c)
		if err := c.Validate(); test.says == "" {
			must.NoError(t, err, must.Sprint(test.name))
		} else {
			must.ErrorContains(t, err, test.says)
		}
	}
}

func TestValidateAddress(t *testing.T) {
	t.Parallel()
	for address, valid := range map[string]bool{
		"":                            true,
		"127.0.0.1:8500":              true,
		"consul":                      true,
		"[::1]:8500":                  true,
		"https://consul.example:8501": true,
		"http://consul.example/":      true,
		"unix:///run/consul.sock":     true,
		"unix://consul.sock":          false,
		"127.0.0.1:notaport":          false,
		"127.0.0.1:0":                 false,
		"127.0.0.1:99999":             false,
		"http://[::1":                 false,
		"http://":                     false,
		"consul example:8500":         false,
		"etcd://consul.example":       false,
	} {
		c := Default()
		c.Address = address
		must.Eq(t, valid, c.Validate() == nil, must.Sprintf("%q", address))
	}
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	must.Eq(t, Default(), Config{}.WithDefaults())
	c := Config{Store: StoreFile, Prefix: "p", Path: "/x"}
	must.Eq(t, c, c.WithDefaults())
}
