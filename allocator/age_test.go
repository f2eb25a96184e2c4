// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator_test

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestClaim_age(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		age   time.Duration
		older bool
	}{
		"old":                    {time.Hour, true},
		"young":                  {time.Minute, false},
		"of this moment":         {0, false},
		"ahead of a slow clock":  {-allocator.ClockSkew, false},
		"from the future":        {-allocator.ClockSkew - time.Second, true},
		"from a far-away future": {-24 * time.Hour, true},
	} {
		claim := allocator.Claim{ClaimedAt: noon.Add(-c.age)}
		must.Eq(t, c.older, claim.IsOlder(2*time.Minute, noon), must.Sprint(what))
	}
}
