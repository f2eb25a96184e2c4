// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import "time"

// IsOlder reports whether the claim was made longer ago than the given time. A claim with a
// time in the future was dated by a wrong clock. It counts as old, since it would otherwise
// stay young until that time. A claim at most ClockSkew ahead counts as just made.
func (c Claim) IsOlder(than time.Duration, now time.Time) bool {
	age := now.Sub(c.ClaimedAt)
	return age > than || age < -ClockSkew
}
