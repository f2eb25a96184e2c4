// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"strconv"
	"strings"
)

// DefaultPrefix is the store's prefix unless the operator sets another.
const DefaultPrefix = "gpu-mem"

// Keys of the table, below the store's prefix:
//
//	nodes/<node>          NodeState, written by the device plugin
//	nodes/<node>/lease    exists while the device plugin renews it
//	gpus/<UUID>/state     GPUState, written by the device plugin
//	gpus/<UUID>/claims    Ledger, written by the task driver and by operators
//	gpus/<UUID>/cordon    Cordon, written by operators
//	profiles/<name>       Profile, written by operators
const (
	nodesPrefix    = "nodes/"
	gpusPrefix     = "gpus/"
	profilesPrefix = "profiles/"
	stateSuffix    = "/state"
	claimsSuffix   = "/claims"
	leaseSuffix    = "/lease"
	cordonSuffix   = "/cordon"
)

// NodeKey is the key of a node's state.
func NodeKey(node NodeName) string { return nodesPrefix + escape(string(node)) }

// leaseKey is the key of a node's lease.
func leaseKey(node NodeName) string { return NodeKey(node) + leaseSuffix }

// parseLeaseKey is the inverse of leaseKey.
func parseLeaseKey(key string) (node NodeName, ok bool) {
	name, isLease := strings.CutSuffix(key, leaseSuffix)
	if !isLease {
		return "", false
	}
	return parseNodeKey(name)
}

// StateKey is the key of a GPU's state.
func StateKey(gpu GPUID) string { return gpusPrefix + escape(string(gpu)) + stateSuffix }

// ClaimsKey is the key of a GPU's ledger.
func ClaimsKey(gpu GPUID) string { return gpusPrefix + escape(string(gpu)) + claimsSuffix }

// CordonKey is the key of a GPU's cordon.
func CordonKey(gpu GPUID) string { return gpusPrefix + escape(string(gpu)) + cordonSuffix }

// parseNodeKey is the inverse of NodeKey.
func parseNodeKey(key string) (node NodeName, ok bool) {
	element, isNode := strings.CutPrefix(key, nodesPrefix)
	if !isNode {
		return "", false
	}
	name, ok := parseElement(element)
	return NodeName(name), ok
}

// parseGPUKey is the inverse of StateKey, ClaimsKey and CordonKey.
func parseGPUKey(key string) (gpu GPUID, suffix string, ok bool) {
	name, isGPU := strings.CutPrefix(key, gpusPrefix)
	at := strings.LastIndexByte(name, '/')
	if !isGPU || at < 0 {
		return "", "", false
	}
	id, ok := parseElement(name[:at])
	return GPUID(id), name[at:], ok
}

// ProfileKey is the key of a profile.
func ProfileKey(name string) string { return profilesPrefix + escape(name) }

// parseProfileKey is the inverse of ProfileKey.
func parseProfileKey(key string) (name string, ok bool) {
	element, isProfile := strings.CutPrefix(key, profilesPrefix)
	if !isProfile {
		return "", false
	}
	return parseElement(element)
}

// parseElement is the inverse of escape. It rejects other spellings of a name: no two keys
// may mean the same name.
func parseElement(s string) (name string, ok bool) {
	name, err := unescape(s)
	if err != nil || name == "" || escape(name) != s {
		return "", false
	}
	return name, true
}

// escape turns any name into one path element that every store accepts in a key: letters,
// digits, '-', '_' and inner '.' stay, other bytes become ~XX. UUIDs and ordinary host names
// stay unchanged.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
		if plain || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "~%02X", c)
		}
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '~' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("key element %q: incomplete escape after ~", s)
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("key element %q: %w", s, err)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}
