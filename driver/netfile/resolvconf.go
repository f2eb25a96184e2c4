// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package netfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/docker/docker/libnetwork/resolvconf"
	"github.com/hashicorp/nomad/plugins/drivers"
)

// ResolvConf is the resolv.conf of a task in a group with a dns block. What the block
// leaves out is the host's, as with Nomad's own drivers.
func ResolvConf(dns *drivers.DNSConfig) (string, error) {
	servers, searches, options := present(dns.Servers), present(dns.Searches), present(dns.Options)
	if err := checkDNS(servers, searches, options); err != nil {
		return "", err
	}
	host, err := resolvconf.Get()
	if err != nil {
		return "", fmt.Errorf("cannot read the host's resolv.conf, which completes the group's dns block: %w", err)
	}
	if len(servers)+len(searches)+len(options) == 0 {
		return string(host.Content), nil
	}
	if len(servers) == 0 {
		servers = resolvconf.GetNameservers(host.Content, resolvconf.IP)
	}
	if len(searches) == 0 {
		searches = resolvconf.GetSearchDomains(host.Content)
	}
	if len(options) == 0 {
		options = resolvconf.GetOptions(host.Content)
	}
	var text strings.Builder
	for _, server := range servers {
		fmt.Fprintln(&text, "nameserver", server)
	}
	searches = slices.DeleteFunc(searches, func(domain string) bool { return domain == "." })
	if len(searches) > 0 {
		fmt.Fprintln(&text, "search", strings.Join(searches, " "))
	}
	if len(options) > 0 {
		fmt.Fprintln(&text, "options", strings.Join(options, " "))
	}
	return text.String(), nil
}

func present(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(value string) bool { return value == "" })
}

// checkDNS makes sure that each value of a dns block is one word of one line.
func checkDNS(servers, searches, options []string) error {
	for _, server := range servers {
		if _, err := netip.ParseAddr(server); err != nil || !isWord(server) {
			return fmt.Errorf("network.dns.servers: %q is not an IP address", server)
		}
	}
	return cmp.Or(checkWords("network.dns.searches", searches), checkWords("network.dns.options", options))
}

func checkWords(key string, values []string) error {
	for _, value := range values {
		if !isWord(value) {
			return fmt.Errorf("%s: %q has white space or control characters: give each value its own element of the list", key, value)
		}
	}
	return nil
}

// isWord reports whether text is one word of a line-based file.
func isWord(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}
