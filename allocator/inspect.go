// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
)

// Inspect reads one GPU's claims and cordon, without its state. The error matches
// ErrUnreadable if the claims cannot be decoded.
func (t *Table) Inspect(ctx context.Context, gpu GPUID) (GPU, error) {
	claims, err := t.store.Get(ctx, ClaimsKey(gpu))
	if err != nil {
		return GPU{}, err
	}
	ledger, err := DecodeLedger(claims.Value)
	if err != nil {
		return GPU{}, fmt.Errorf("key %s: %w", ClaimsKey(gpu), err)
	}
	cordon, err := t.store.Get(ctx, CordonKey(gpu))
	if err != nil {
		return GPU{}, err
	}
	return GPU{ID: gpu, Ledger: ledger, Cordon: decodeCordon(cordon.Value)}, nil
}

// Node reads the state that a node's device plugin reported, the zero state if none. The
// error matches ErrUnreadable if it cannot be decoded.
func (t *Table) Node(ctx context.Context, name NodeName) (NodeState, error) {
	return get(ctx, t.store, NodeKey(name), func(value []byte) (NodeState, error) { return decodeNode(name, value) })
}

// State reads the state that the device plugin reported of a GPU, the zero state if none.
// The error matches ErrUnreadable if it cannot be decoded.
func (t *Table) State(ctx context.Context, gpu GPUID) (GPUState, error) {
	return get(ctx, t.store, StateKey(gpu), decodeState[GPUState])
}

func get[T state](ctx context.Context, store Store, key string, decode func([]byte) (T, error)) (T, error) {
	var none T
	entry, err := store.Get(ctx, key)
	if err != nil {
		return none, err
	}
	found, err := decode(entry.Value)
	if err != nil {
		return none, fmt.Errorf("key %s: %w", key, err)
	}
	return found, nil
}
