// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func BenchmarkDecodeLedger(b *testing.B) {
	ledger, err := allocator.DecodeLedger(nil)
	must.NoError(b, err)
	for n, id := range []string{"1b2c3d4e-5f0e-4e6b-9a3c-2d1b0c9f8e7d", "77aa66bb-0d1e-4f2a-8b3c-4d5e6f708192", "alloc-3", "alloc-4"} {
		_, err := ledger.Claim(ownerOf(id), allocator.Attempt{ID: "start-1"}, bookingOf("GPU-1", n), noon)
		must.NoError(b, err)
	}
	value, err := ledger.Encode()
	must.NoError(b, err)
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		if _, err := allocator.DecodeLedger(value); err != nil {
			b.Fatal(err)
		}
	}
}
