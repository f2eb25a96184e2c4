// Package tableconfig is the configuration of the allocation table: the
// "table" block that the device plugin and the task driver share, and the
// command line's flags. It opens nothing; main does.
package tableconfig

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// The stores that a table can be kept in.
const (
	StoreConsul = "consul" // Consul KV, for a cluster
	StoreFile   = "file"   // a file, for one node without Consul
)

// Defaults of the options.
const (
	DefaultStore  = StoreConsul
	DefaultPrefix = "gpu-mem"
	DefaultPath   = "/var/lib/nomad-gpu-mem/table.json"
)

// Config says where the table is.
type Config struct {
	Store string `codec:"store"` // StoreConsul or StoreFile

	// Consul. What is empty comes from the environment variables that all
	// Consul clients read (CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN, ...).
	Address string `codec:"address"` // "127.0.0.1:8500", "https://consul.example:8501", "unix:///path"
	Token   string `codec:"token"`
	Prefix  string `codec:"prefix"` // of all keys, without slashes at its ends

	// File.
	Path string `codec:"path"`
}

// Default returns the configuration of an absent table block.
func Default() Config {
	return Config{Store: DefaultStore, Prefix: DefaultPrefix, Path: DefaultPath}
}

// Spec is the schema of the table block's body.
func Spec() *hclspec.Spec {
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"store":   withDefault("store", DefaultStore),
		"address": hclspec.NewAttr("address", "string", false),
		"token":   hclspec.NewAttr("token", "string", false),
		"prefix":  withDefault("prefix", DefaultPrefix),
		"path":    withDefault("path", DefaultPath),
	})
}

func withDefault(name, value string) *hclspec.Spec {
	return hclspec.NewDefault(hclspec.NewAttr(name, "string", false), hclspec.NewLiteral(fmt.Sprintf("%q", value)))
}

// WithDefaults fills what is empty: Nomad leaves a block that is not there
// zero.
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

func (c Config) validateConsul() error {
	if c.Prefix == "" || c.Prefix != strings.Trim(c.Prefix, "/") || strings.Contains(c.Prefix, "//") {
		return fmt.Errorf("table.prefix = %q: want a Consul KV path without slashes at its ends", c.Prefix)
	}
	if !addressable(c.Prefix) {
		return fmt.Errorf("table.prefix = %q: Consul cannot be asked for keys with \".\" or \"..\" between slashes, or with what cannot be seen", c.Prefix)
	}
	if !validAddress(c.Address) {
		return fmt.Errorf("table.address = %q: want host:port, an http or https URL, or unix:///path", c.Address)
	}
	return nil
}

// addressable reports whether what is written below a prefix is also found there:
// reads name keys in a URL's path, of which servers take out some elements.
func addressable(prefix string) bool {
	for element := range strings.SplitSeq(prefix, "/") {
		if element == "." || element == ".." {
			return false
		}
	}
	return utf8.ValidString(prefix) && !strings.ContainsFunc(prefix, unicode.IsControl)
}

// validAddress reports whether the Consul client can make something of the
// address. Empty is for the environment to say.
func validAddress(address string) bool {
	scheme, rest, isURL := strings.Cut(address, "://")
	switch {
	case address == "":
		return true
	case !isURL:
		rest = address
	case scheme == "unix":
		return filepath.IsAbs(rest)
	case scheme != "http" && scheme != "https":
		return false
	}
	u, err := url.Parse("http://" + rest)
	if err != nil || u.Hostname() == "" || strings.ContainsAny(rest, " \t\n") {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}
