// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import "net"

// Addresses that are nobody's, so only a default route leads to them.
const (
	elsewhere4 = "203.0.113.1:9"
	elsewhere6 = "[2001:db8::1]:9"
)

// nodeAddress is the address by which this node reaches other networks: that of
// the interface that its default route takes, IPv4 before IPv6. It is empty if
// the node has no such route. The kernel is asked, and nothing is sent.
func nodeAddress() string {
	for _, target := range []string{elsewhere4, elsewhere6} {
		conn, err := net.Dial("udp", target)
		if err != nil {
			continue
		}
		local, ok := conn.LocalAddr().(*net.UDPAddr)
		_ = conn.Close()
		if ok && local.IP.IsGlobalUnicast() {
			return local.IP.String()
		}
	}
	return ""
}
