// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import "time"

// IsOlder reports whether the claim was made longer ago than the given time. A claim from
// the future is one that a wrong clock dated: its age is not known, and it counts as
// old, since it would otherwise stay young until the clock gets there. What is ahead by
// no more than ClockSkew counts as made just now.
func (c Claim) IsOlder(than time.Duration, now time.Time) bool {
	age := now.Sub(c.ClaimedAt)
	return age > than || age < -ClockSkew
}
