// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"strings"
	"time"
)

// A claim's share of its ledger's size is proportional to its units. Job authors choose the
// names in a claim: without a bound those of one job could fill the ledger, and no other task
// could claim the free units.
const (
	// ledgerSize bounds a ledger, in bytes: in base64 and with its envelope that is a
	// transaction of 512 KiB, Consul's limit.
	ledgerSize = 380 << 10

	// usualUnits are the units of the largest GPU in use, 141 GiB in units of 256 MiB.
	// That many claims fit into a ledger, whatever the names in them.
	usualUnits = 564

	// aroundClaims is the size of a ledger without claims and unit map, aroundClaim that
	// of a claim's marks in both.
	aroundClaims = 512
	aroundClaim  = 10

	// spare is the size in bytes left in a claim for fields of later versions. A long task
	// name may use it.
	spare = 44

	// longestName and shortestName bound the size of a name in JSON, in bytes.
	longestName  = 128
	shortestName = 12
)

// sizeLimit returns how many bytes a claim of this many units may take on a GPU of totalUnits
// units, including the fields that are set later.
func sizeLimit(units, totalUnits int) int {
	return units * max(0, (ledgerSize-aroundClaims)/totalUnits-aroundClaim)
}

// fitted returns the claim with its names shortened to its share of a ledger of usualUnits
// units. The names of the task and its attempt are not shortened: they identify the claim. If
// these are too long even for the units of this GPU, the error matches ErrTooLarge.
//
// Fields that this version does not know are not counted: the version that adds them must
// keep within spare.
func (c Claim) fitted(gpu GPUID, units, of int) (Claim, error) {
	nameless := c
	for _, name := range nameless.names() {
		*name = ""
	}
	size := nameless.grown()
	limit := c.nameLimit(sizeLimit(units, usualUnits) - size - spare)
	short := c
	for _, name := range short.names() {
		*name = shorten(*name, limit)
	}
	most := max(sizeLimit(units, usualUnits), sizeLimit(units, of))
	if size += short.lengthOfNames(limit); size > most {
		return c, fmt.Errorf("claim of %s on GPU %s: its task name of %d bytes and the IDs take %d bytes, at most %d are allowed for %d of %d units; "+
			"give the task a shorter name: %w", short.Owner, gpu, len(c.Task), size, most, units, of, ErrTooLarge)
	}
	return short, nil
}

// names returns the names that may be shortened.
func (c *Claim) names() []*string {
	return []*string{&c.Namespace, &c.Job, &c.Group, (*string)(&c.NodeName)}
}

// nameLimit returns how long each name may be so that all names fit into size bytes of JSON.
func (c Claim) nameLimit(size int) int {
	for limit := longestName; limit > shortestName; limit-- {
		if c.lengthOfNames(limit) <= size {
			return limit
		}
	}
	return shortestName
}

// lengthOfNames returns an upper bound of the names' size in JSON if each is shortened to
// the limit.
func (c Claim) lengthOfNames(limit int) (sum int) {
	for _, name := range c.names() {
		sum += shortenedLen(*name, limit)
	}
	return sum
}

// grown returns the largest size in bytes that the claim will have, with all fields that are
// added after it is made.
func (c Claim) grown() int {
	longest := time.Date(2026, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	millis := longest.Truncate(time.Millisecond)
	c.unknown, c.ClaimedAt = nil, millis
	if c.State.isTasks() {
		c.State, c.Container, c.Begun, c.RunningAt, c.StuckAt = Running, strings.Repeat("f", 64), longest, millis, millis
		if c.Engine == "" {
			c.Engine = strings.Repeat("f", 36)
		}
	} else {
		c.State, c.ExpiresAt = Requested, millis
	}
	text, err := c.MarshalJSON()
	if err != nil {
		return ledgerSize // never: every field of a claim can be encoded
	}
	return len(text)
}
