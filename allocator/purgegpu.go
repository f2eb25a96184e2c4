// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"time"
)

// PurgeGPU deletes the state of a GPU that is gone, with its empty ledger. A GPU with claims,
// a cordon or a state newer than updatedAt stays: the error matches ErrConflict. It deletes
// all or nothing, so that a concurrent claim is not lost.
func (t *Table) PurgeGPU(ctx context.Context, gpu GPUID, updatedAt time.Time) error {
	state, err := t.store.Get(ctx, StateKey(gpu))
	if err != nil || state.Version == 0 {
		return err
	}
	known, err := decodeState[GPUState](state.Value)
	if err != nil {
		return fmt.Errorf("key %s: %w", state.Key, err)
	}
	if !known.UpdatedAt.Equal(updatedAt) {
		return fmt.Errorf("GPU %s was reported at %s: %w", gpu, known.UpdatedAt.Format(time.RFC3339), ErrConflict)
	}
	claims, err := t.store.Get(ctx, ClaimsKey(gpu))
	if err != nil {
		return err
	}
	ledger, err := DecodeLedger(claims.Value)
	if err != nil {
		return fmt.Errorf("key %s: %w", claims.Key, err)
	}
	if len(ledger.current(t.now()).Marks) > 0 {
		return fmt.Errorf("GPU %s has claims: %w", gpu, ErrConflict)
	}
	cordon, err := t.store.Get(ctx, CordonKey(gpu))
	if err != nil {
		return err
	}
	if cordon.Version != 0 {
		return fmt.Errorf("GPU %s is cordoned: %w", gpu, ErrConflict)
	}
	return t.store.Apply(ctx, []Write{
		{Key: state.Key, Version: state.Version},
		{Key: claims.Key, Version: claims.Version}, // 0: the key must not exist
		{Key: cordon.Key},
	})
}
