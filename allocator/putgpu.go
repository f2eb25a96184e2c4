// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
)

// PutGPU records a GPU's state if it differs from the recorded one in more than the time. A
// physical GPU is in one machine: another node's state of it is replaced only once that node
// is gone or no longer finds the GPU. Before that the error matches ErrOtherNode. An
// unreadable state is never replaced: the error matches ErrUnreadable.
func (t *Table) PutGPU(ctx context.Context, gpu GPUID, state GPUState) error {
	if gpu == "" || state.Node == "" {
		return fmt.Errorf("state of GPU %q on node %q: both are required: %w", gpu, state.Node, ErrInvalid)
	}
	if err := state.check(); err != nil { // no reader would accept it
		return fmt.Errorf("state of GPU %s: %w: %w", gpu, err, ErrInvalid)
	}
	other, err := t.putGPU(ctx, gpu, state, "")
	if err != nil || other.Node == "" {
		return err
	}
	left, err := t.hasLeft(ctx, gpu, other)
	if err != nil {
		return fmt.Errorf("GPU %s: whether node %q still has it: %w", gpu, other.Node, err)
	}
	if left {
		if other, err = t.putGPU(ctx, gpu, state, other.Node); err != nil || other.Node == "" {
			return err
		}
	}
	return fmt.Errorf("GPU %s is reported by node %q and by node %q, and a GPU is in one machine: two nodes cannot share a GPU "+
		"or a host name; if it was moved, node %q takes it over when node %q has lost its lease: %w",
		gpu, other.Node, state.Node, state.Node, other.Node, ErrOtherNode)
}

// putGPU replaces a state of the same node or of the node instead. Otherwise it returns the
// other node's state, unchanged.
func (t *Table) putGPU(ctx context.Context, gpu GPUID, state GPUState, instead NodeName) (other GPUState, err error) {
	err = put(ctx, t.store, StateKey(gpu), func(old GPUState, exists bool) (GPUState, bool, error) {
		other = GPUState{}
		if exists && old.Node != state.Node && old.Node != instead {
			other = old
			return old, false, nil
		}
		state.unknown, state.UpdatedAt = old.unknown, old.UpdatedAt
		if same, err := sameJSON(old, state); err != nil || exists && same {
			return old, false, err
		}
		state.UpdatedAt = t.now()
		return state, true, nil
	})
	return other, err
}

// hasLeft reports whether the node that wrote a GPU's state is gone, or no longer finds the
// GPU. A node without a state is gone if it has been silent for long: a living one writes its
// state again with the next heartbeat.
func (t *Table) hasLeft(ctx context.Context, gpu GPUID, state GPUState) (bool, error) {
	node, err := t.Node(ctx, state.Node)
	if err != nil {
		return false, err
	}
	lease, err := t.store.Get(ctx, leaseKey(state.Node))
	if err != nil {
		return false, err
	}
	now := t.now()
	switch {
	case node.Lacks(gpu):
		return true, nil
	case lease.Version != 0:
		return false, nil
	case node.Name == "":
		return now.Sub(state.UpdatedAt) > Silence, nil
	case node.LeaseSeconds > 0: // a living node acquires a lost lease again with the next heartbeat
		return now.Sub(node.LastSeen) > LeaseTime, nil
	default:
		return now.Sub(node.LastSeen) > Silence, nil
	}
}
