// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nomad-gpu-mem/allocator/profile"
	"nomad-gpu-mem/internal/quantity"
)

// parseMiB reads a size: GiB is a power of 2, GB a power of 10, and a bare number is
// MiB. The result may be negative, or larger than any GPU.
func parseMiB(text string) (float64, error) {
	if mib, err := strconv.ParseFloat(text, 64); err == nil {
		return mib, nil
	}
	amount, negative := strings.CutPrefix(text, "-")
	bytes, err := quantity.Bytes(amount)
	if err != nil {
		return 0, err
	}
	mib := float64(bytes) / (1 << 20)
	if negative {
		mib = -mib
	}
	return mib, nil
}

// parseBound reads a size in whole MiB, from 0 to the most that a GPU may have.
func parseBound(text string) (uint64, error) {
	mib, err := parseMiB(text)
	if err != nil {
		return 0, err
	}
	if !(0 <= mib && mib <= profile.LargestMiB) || mib != math.Trunc(mib) {
		return 0, fmt.Errorf("invalid size %q, want whole MiB from 0 to %d", text, profile.LargestMiB)
	}
	return uint64(mib), nil
}
