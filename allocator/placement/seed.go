// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import "hash/fnv"

// mix returns a rank of the name that depends on the seed.
func mix(seed uint64, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	x := h.Sum64() ^ seed*0x9e3779b97f4a7c15
	// The finalizer of splitmix64: all bits of x change all bits of the result.
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
