// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"time"

	"nomad-gpu-mem/allocator"
)

// Leasing is a Memory with leases. They end when Expire is called.
type Leasing struct{ *Memory }

var _ allocator.Leaser = Leasing{}

// Lease writes the key if it is not there.
func (l Leasing) Lease(ctx context.Context, key string, value []byte, _ time.Duration) error {
	entry, err := l.Get(ctx, key)
	if err != nil || entry.Version != 0 {
		return err
	}
	return l.Apply(ctx, []allocator.Write{{Key: key, Value: value}})
}

// Expire ends a lease.
func (l Leasing) Expire(ctx context.Context, key string) error {
	entry, err := l.Get(ctx, key)
	if err != nil || entry.Version == 0 {
		return err
	}
	return l.Apply(ctx, []allocator.Write{{Key: key, Version: entry.Version}})
}
