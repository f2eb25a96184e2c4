// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package tableconfig is the configuration of the allocation table, for the "table" block of
// the device plugin and the task driver and for the command line's flags. main opens the
// table.
//
// tableconfig.go has the options and the file store's checks, consul.go those of Consul.
package tableconfig

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/schema"
)

// The stores of a table.
const (
	StoreConsul = "consul" // Consul KV, for a cluster
	StoreFile   = "file"   // a file, for one node without Consul
)

// Defaults of the options.
const (
	DefaultStore = StoreConsul
	DefaultPath  = "/var/lib/nomad-gpu-mem/table.json"
)

// Config locates the table.
type Config struct {
	Store string `codec:"store"` // StoreConsul or StoreFile

	// Consul. Empty options default to the environment variables of Consul's clients
	// (CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN, ...).
	Address       string `codec:"address"` // "127.0.0.1:8500", "https://consul.example:8501", "unix:///path"
	Token         string `codec:"token"`
	TokenFile     string `codec:"token_file"` // read again whenever it changes
	Prefix        string `codec:"prefix"`     // of all keys, without slashes at its ends
	CAFile        string `codec:"ca_file"`
	CertFile      string `codec:"cert_file"`
	KeyFile       string `codec:"key_file"`
	TLSServerName string `codec:"tls_server_name"` // the name in the server's certificate, if not the address's host
	Namespace     string `codec:"namespace"`       // of Consul Enterprise, as is Partition
	Partition     string `codec:"partition"`
	Datacenter    string `codec:"datacenter"` // the agent's if empty

	// File.
	Path string `codec:"path"`
}

// Default returns the configuration of an absent table block.
func Default() Config {
	return Config{Store: DefaultStore, Prefix: allocator.DefaultPrefix, Path: DefaultPath}
}

// Spec is the schema of the table block's body.
func Spec() *hclspec.Spec {
	fields := []schema.Field{
		schema.Default(schema.Text("store"), strconv.Quote(DefaultStore)),
		schema.Default(schema.Text("prefix"), strconv.Quote(allocator.DefaultPrefix)),
		schema.Default(schema.Text("path"), strconv.Quote(DefaultPath)),
	}
	for _, name := range []string{
		"address", "token", "token_file", "ca_file", "cert_file", "key_file", "tls_server_name",
		"namespace", "partition", "datacenter",
	} {
		fields = append(fields, schema.Text(name))
	}
	return schema.Object(fields...)
}

// WithDefaults sets the defaults of empty options: Nomad leaves a missing block zero.
func (c Config) WithDefaults() Config {
	d := Default()
	if c.Store == "" {
		c.Store = d.Store
	}
	if c.Prefix == "" {
		c.Prefix = d.Prefix
	}
	if c.Path == "" {
		c.Path = d.Path
	}
	return c
}

// Validate checks the configuration without touching a network or a file. The
// error names the option and its value; a token is never printed.
func (c Config) Validate() error {
	switch c.Store {
	case StoreConsul:
		return c.validateConsul()
	case StoreFile:
		if !filepath.IsAbs(c.Path) {
			return fmt.Errorf("table.path = %q: want an absolute path", c.Path)
		}
		return nil
	default:
		return fmt.Errorf("table.store = %q: want %q or %q", c.Store, StoreConsul, StoreFile)
	}
}
