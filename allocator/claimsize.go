// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"strings"
	"time"
)

// A claim has room in its ledger by the units that it holds. Names are a job author's
// choice; without a bound those of one job could fill the ledger, and no other task
// could claim the units that are free.
const (
	// ledgerRoom is what a ledger may take, in bytes: in base64, and with what is around
	// it, that is a transaction of 512 KiB, Consul's most.
	ledgerRoom = 380 << 10

	// usualUnits are the units of the largest GPU in use, 141 GiB in units of 256 MiB.
	// So many claims fit on a GPU whatever the names in them.
	usualUnits = 564

	// aroundClaims is for what a ledger has besides its claims and its unit map, and
	// aroundClaim for a claim's marks in both.
	aroundClaims = 512
	aroundClaim  = 10

	// spare is room in a claim, in bytes, for the fields that a later version adds. A long
	// task name may take it.
	spare = 44

	// longestName and shortestName bound what a name takes in JSON, in bytes.
	longestName  = 128
	shortestName = 12
)

// roomOf is what a claim may take with all that will be added to it, in bytes, on a GPU
// that is divided into so many units.
func roomOf(units, of int) int {
	return units * max(0, (ledgerRoom-aroundClaims)/of-aroundClaim)
}

// fitted returns the claim with its names shortened as far as it takes to fit into its
// room among usualUnits others. Names that identify the task stay whole: its own, and
// that of its attempt. If these are too long even for the units of this GPU the error
// matches ErrTooLarge.
//
// Fields that this version does not know are not counted: the version that adds them
// has to find room for them.
func (c Claim) fitted(gpu GPUID, units, of int) (Claim, error) {
	nameless := c
	for _, name := range nameless.names() {
		*name = ""
	}
	size := nameless.grown()
	limit := c.nameLimit(roomOf(units, usualUnits) - size - spare)
	short := c
	for _, name := range short.names() {
		*name = shorten(*name, limit)
	}
	room := max(roomOf(units, usualUnits), roomOf(units, of))
	if size += short.lengthOfNames(limit); size > room {
		return c, fmt.Errorf("claim of %s on GPU %s: its task name of %d bytes and the IDs take %d bytes, %d are possible for %d of %d units; "+
			"give the task a shorter name: %w", short.Owner, gpu, len(c.Task), size, room, units, of, ErrTooLarge)
	}
	return short, nil
}

// names are those of a claim that may be shortened.
func (c *Claim) names() []*string {
	return []*string{&c.Namespace, &c.Job, &c.Group, (*string)(&c.NodeName)}
}

// nameLimit is how long each name may be so that all of them have room for their JSON.
func (c Claim) nameLimit(room int) int {
	for limit := longestName; limit > shortestName; limit-- {
		if c.lengthOfNames(limit) <= room {
			return limit
		}
	}
	return shortestName
}

// lengthOfNames is at least what the names take in JSON if each is shortened to the limit.
func (c Claim) lengthOfNames(limit int) (sum int) {
	for _, name := range c.names() {
		sum += shortenedLen(*name, limit)
	}
	return sum
}

// grown is how many bytes the claim will take at most, once all is added to it that is
// not known when it is made.
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
		return ledgerRoom // nothing in a claim can fail to be encoded
	}
	return len(text)
}
