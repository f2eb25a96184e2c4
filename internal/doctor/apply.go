// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator"
)

// Table is the part of the allocation table that remedies use.
type Table interface {
	Release(ctx context.Context, owner allocator.Owner, attempt string, gpus []allocator.GPUID) error
	PurgeKey(ctx context.Context, key string) error
	PurgeNode(ctx context.Context, name allocator.NodeName, lastSeen time.Time, spare func(allocator.Claim) bool) error
	PurgeGPU(ctx context.Context, gpu allocator.GPUID, updatedAt time.Time) error
}

var _ Table = (*allocator.Table)(nil)

// Apply applies the remedy. It leaves alone what has changed since the evidence was
// collected.
func (r Remedy) Apply(ctx context.Context, table Table) error {
	switch r.Action {
	case Release:
		return table.Release(ctx, r.claim.Owner, r.claim.Attempt, []allocator.GPUID{r.gpu})
	case PurgeKey:
		return table.PurgeKey(ctx, r.key)
	case PurgeNode:
		return table.PurgeNode(ctx, r.node, r.lastSeen, r.spare)
	case PurgeGPU:
		return table.PurgeGPU(ctx, r.gpu, r.lastSeen)
	default:
		return fmt.Errorf("unknown remedy %q", r.Action)
	}
}
