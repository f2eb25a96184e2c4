// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package tableconfig

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func (c Config) validateConsul() error {
	if c.Prefix == "" || c.Prefix != strings.Trim(c.Prefix, "/") || strings.Contains(c.Prefix, "//") {
		return fmt.Errorf("table.prefix = %q: want a Consul KV path without slashes at its ends, for example gpu-mem", c.Prefix)
	}
	if !addressable(c.Prefix) {
		return fmt.Errorf("table.prefix = %q: Consul does not support \".\", \"..\" or control characters in it", c.Prefix)
	}
	if !validAddress(c.Address) {
		return fmt.Errorf("table.address = %q: want host:port, an http or https URL, or unix:///path", c.Address)
	}
	if c.Token != "" && c.TokenFile != "" {
		return errors.New("table.token and table.token_file are both set: remove one of them")
	}
	return c.validateFiles()
}

// validateFiles checks the options for files and TLS. Paths must be absolute: they must not
// depend on the agent's working directory.
func (c Config) validateFiles() error {
	scheme, _, found := strings.Cut(c.Address, "://")
	for _, option := range []struct {
		name, value   string
		isPath, isTLS bool
	}{
		{"token_file", c.TokenFile, true, false},
		{"ca_file", c.CAFile, true, true},
		{"cert_file", c.CertFile, true, true},
		{"key_file", c.KeyFile, true, true},
		{"tls_server_name", c.TLSServerName, false, true},
	} {
		switch {
		case option.value == "":
		case option.isPath && !filepath.IsAbs(option.value):
			return fmt.Errorf("table.%s = %q: want an absolute path", option.name, option.value)
		case option.isTLS && found && scheme != "https":
			return fmt.Errorf("table.%s = %q has no effect, since table.address = %q does not begin with https://",
				option.name, option.value, c.Address)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return fmt.Errorf("table.cert_file = %q and table.key_file = %q: set both or neither", c.CertFile, c.KeyFile)
	}
	return nil
}

// addressable reports whether keys below a prefix can be read back: reads have the key in a
// URL's path, from which servers remove some elements.
func addressable(prefix string) bool {
	for element := range strings.SplitSeq(prefix, "/") {
		if element == "." || element == ".." {
			return false
		}
	}
	return utf8.ValidString(prefix) && !strings.ContainsFunc(prefix, unicode.IsControl)
}

// validAddress reports whether the Consul client accepts the address. An empty one defaults to
// the environment's.
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
