// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
)

// Reach reads an arbitrary key and returns the store's error, nil if the store answers. It
// does not check the permission to write: see Writable.
func (t *Table) Reach(ctx context.Context) error {
	_, err := t.store.Get(ctx, NodeKey("reach"))
	return err
}

// neverReached is a version that no key ever has: a store that counted a
// million changes a second would need 142 years.
const neverReached = 1 << 52

// Writable returns nil if the store permits the writes of a claim. It attempts a write that
// expects a version that no key has. The store rejects it, but checks the permission first.
func (t *Table) Writable(ctx context.Context) error {
	err := t.store.Apply(ctx, []Write{{Key: ClaimsKey("reach"), Value: []byte("{}"), Version: neverReached}})
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}
