// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// PutNode records a node's state and that it was seen now, and renews its lease
// in a store that has leases. The state is also recorded if the lease fails, and if
// another machine reports under the same host name: the error then matches ErrSharedName.
func (t *Table) PutNode(ctx context.Context, state NodeState) error {
	if state.Name == "" {
		return fmt.Errorf("state of a node without a name: %w", ErrInvalid)
	}
	leaseErr := t.lease(ctx, &state)
	var shared error
	err := put(ctx, t.store, NodeKey(state.Name), func(old NodeState, exists bool) (NodeState, bool, error) {
		if exists && old.Name != state.Name {
			return old, false, fmt.Errorf("key %s has the state of node %q: %w", NodeKey(state.Name), old.Name, ErrUnreadable)
		}
		state.unknown, state.LastSeen, shared = old.unknown, t.now(), nil
		switch {
		case state.otherMachine(old):
			shared = fmt.Errorf("%w: %q; give each node a host name of its own", ErrSharedName, state.Name)
			state.SharedUntil = t.now().Add(LeaseTime)
		case t.now().Before(old.SharedUntil) && !old.SharedUntil.After(t.now().Add(LeaseTime)): // else a clock was ahead
			state.SharedUntil = old.SharedUntil
		}
		return state, true, nil
	})
	return errors.Join(err, leaseErr, shared)
}

// sameJSON reports whether both would be written alike. What differs only in
// memory, such as a nil and an empty set, does not differ.
func sameJSON(a, b any) (bool, error) {
	one, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(b)
	return bytes.Equal(one, other), err
}

// put replaces the state under a key with what decide makes of the old one.
func put[T state](ctx context.Context, store Store, key string, decide func(old T, exists bool) (T, bool, error)) error {
	return changeKey(ctx, store, key, func(entry Entry) ([]byte, bool, error) {
		old, err := decodeState[T](entry.Value)
		if err != nil {
			return nil, false, fmt.Errorf("key %s: %w", key, err)
		}
		state, changed, err := decide(old, entry.Version != 0)
		if err != nil || !changed {
			return nil, false, err
		}
		value, err := json.Marshal(state)
		if err != nil {
			return nil, false, fmt.Errorf("key %s: %w", key, err)
		}
		return value, true, nil
	})
}
