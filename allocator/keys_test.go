// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"regexp"
	"testing"

	"github.com/shoenig/test/must"
)

// acceptedKey matches keys that every store and Consul's HTTP API accept without quoting.
var acceptedKey = regexp.MustCompile(`^(nodes|gpus)/[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/state|/claims|/cordon)?$`)

func TestKeys(t *testing.T) {
	t.Parallel()
	must.Eq(t, "gpus/GPU-0a1b-2c/claims", ClaimsKey("GPU-0a1b-2c"))
	must.Eq(t, "gpus/GPU-0a1b-2c/state", StateKey("GPU-0a1b-2c"))
	must.Eq(t, "gpus/MIG-GPU-1~2F13~2F0/claims", ClaimsKey("MIG-GPU-1/13/0"))
	must.Eq(t, "nodes/gpu-1.example.org", NodeKey("gpu-1.example.org"))
	must.Eq(t, "nodes/~2E.", NodeKey(".."))
	must.Eq(t, "nodes/~C3~BC", NodeKey("ü"))
	must.Eq(t, "nodes/a~7Eb", NodeKey("a~b"))
}

func TestParseKeys_leave_others_alone(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "nodes", "nodes/", "nodes/a/b", "nodes/a~2", "nodes/a~zz", "nodes/a~2f", "nodes/~41", "nodes/a b",
		"gpus", "gpus/", "gpus/GPU-1", "gpus//claims", "gpus/GPU-1/claims/", "gpus/a/b/claims", "profiles/llm",
	} {
		_, isNode := parseNodeKey(key)
		must.False(t, isNode, must.Sprint(key))
		_, suffix, isGPU := parseGPUKey(key)
		must.False(t, isGPU && (suffix == claimsSuffix || suffix == stateSuffix), must.Sprint(key))
	}
}

func FuzzKeys(f *testing.F) {
	for _, name := range []string{"GPU-0a1b", "MIG-GPU-1/13/0", ".", "..", "~", "~2F", "a b", "ü", "\xff\x00", "host.example.org", "%2F"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" {
			return
		}
		for key, suffix := range map[string]string{
			ClaimsKey(GPUID(name)): claimsSuffix,
			StateKey(GPUID(name)):  stateSuffix,
			CordonKey(GPUID(name)): cordonSuffix,
		} {
			must.RegexMatch(t, acceptedKey, key)
			gpu, have, ok := parseGPUKey(key)
			must.True(t, ok)
			must.Eq(t, GPUID(name), gpu)
			must.Eq(t, suffix, have)
		}
		must.RegexMatch(t, acceptedKey, NodeKey(NodeName(name)))
		node, ok := parseNodeKey(NodeKey(NodeName(name)))
		must.True(t, ok)
		must.Eq(t, NodeName(name), node)

		// And a key that names something is the only one that does.
		if gpu, suffix, ok := parseGPUKey(name); ok {
			must.Eq(t, name, gpusPrefix+escape(string(gpu))+suffix)
		}
	})
}
