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

// PutNode records a node's state and the time, and renews its lease if the store has leases.
// It also records the state if the lease fails, and if another machine reports under the
// same host name: the error then matches ErrSharedName.
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
			shared = fmt.Errorf("%w: %q; give each node a different host name", ErrSharedName, state.Name)
			state.SharedUntil = t.now().Add(LeaseTime)
		case t.now().Before(old.SharedUntil) && !old.SharedUntil.After(t.now().Add(LeaseTime)): // else a clock was ahead
			state.SharedUntil = old.SharedUntil
		}
		return state, true, nil
	})
	return errors.Join(err, leaseErr, shared)
}

// sameJSON reports whether both have the same JSON. Differences in memory only, such as
// between a nil and an empty set, do not count.
func sameJSON(a, b any) (bool, error) {
	one, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	other, err := json.Marshal(b)
	return bytes.Equal(one, other), err
}

// put replaces the state under a key by the result of decide.
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
