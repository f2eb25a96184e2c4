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
		return fmt.Errorf("table.prefix = %q: want a Consul KV path without slashes at its ends", c.Prefix)
	}
	if !addressable(c.Prefix) {
		return fmt.Errorf("table.prefix = %q: Consul cannot be asked for keys with \".\" or \"..\" between slashes, or with what cannot be seen", c.Prefix)
	}
	if !validAddress(c.Address) {
		return fmt.Errorf("table.address = %q: want host:port, an http or https URL, or unix:///path", c.Address)
	}
	if c.Token != "" && c.TokenFile != "" {
		return errors.New("table.token and table.token_file are both set: remove one of them")
	}
	return c.validateFiles()
}

// validateFiles checks the options that name files, and those of TLS. A path must
// not depend on the directory that an agent was started in.
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
