// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
)

// Reach asks the store one question, whose answer does not matter, and returns
// the store's error if there is none. It does not show whether writing is
// permitted: see Writable.
func (t *Table) Reach(ctx context.Context) error {
	_, err := t.store.Get(ctx, NodeKey("reach"))
	return err
}

// neverReached is a version that no key ever has: a store that counted a
// million changes a second would need 142 years.
const neverReached = 1 << 52

// Writable returns nil if the store permits the changes that a claim makes. The
// change that it asks for is one that the store must refuse, since it expects a
// version that no key has: a store checks the permission first.
func (t *Table) Writable(ctx context.Context) error {
	err := t.store.Apply(ctx, []Write{{Key: ClaimsKey("reach"), Value: []byte("{}"), Version: neverReached}})
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}
