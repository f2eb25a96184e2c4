// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// heldSlice is a claim and the GPU it is on.
type heldSlice struct {
	allocator.Claim
	gpu allocator.GPUID
}

// snapshot reads the table. Unreadable values fail the test.
func (c *cluster) snapshot(t *testing.T) *allocator.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := c.table.Snapshot(ctx)
	must.NoError(t, err)
	must.SliceEmpty(t, s.Problems)
	return s
}

// claims returns all claims of the table.
func (c *cluster) claims(t *testing.T) []heldSlice {
	t.Helper()
	var all []heldSlice
	for _, gpu := range c.snapshot(t).GPUs {
		for _, claim := range gpu.Claims() {
			all = append(all, heldSlice{Claim: claim, gpu: gpu.ID})
		}
	}
	return all
}

// claimsOf returns the claims of a job, once they are in the wanted state.
func (c *cluster) claimsOf(t *testing.T, job string, state allocator.ClaimState) []heldSlice {
	t.Helper()
	var mine []heldSlice
	eventually(t, 20*time.Second, fmt.Sprintf("claims of %s are %s", job, state), func() error {
		mine = nil
		for _, held := range c.claims(t) {
			if held.Job != job {
				continue
			}
			if held.State != state {
				return fmt.Errorf("%s is %s", held.Owner, held.State)
			}
			mine = append(mine, held)
		}
		if mine == nil {
			return fmt.Errorf("none")
		}
		return nil
	})
	return mine
}

// requireEmpty fails the test if any unit is held.
func (c *cluster) requireEmpty(t *testing.T) {
	t.Helper()
	eventually(t, startTime, "nothing is claimed", func() error {
		if held := c.claims(t); len(held) > 0 {
			return fmt.Errorf("%d claims, the first by %s", len(held), held[0].Owner)
		}
		return nil
	})
}
