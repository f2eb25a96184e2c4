// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"time"
)

// LeaseTime is how long a node counts as alive after the last heartbeat of its device
// plugin. It is several heartbeats, and longer than servers take to elect a leader.
const LeaseTime = 90 * time.Second

// Silence is how long a node without a lease may be silent: many of its heartbeats.
const Silence = 10 * time.Minute

// Leaser is an optional feature of a Store: keys that expire unless they are renewed. They
// only show which nodes are alive. No claim depends on a lease.
type Leaser interface {
	// Lease keeps the key, with the value, until ttl after the last call for it. Any
	// process may renew it. The key may outlive that time by another ttl.
	Lease(ctx context.Context, key string, value []byte, ttl time.Duration) error
}

// Liveness is whether a node is alive, by its lease.
type Liveness string

const (
	// LivenessUnknown is a node without a lease: its store has no leases, or its token
	// may not acquire one. Only NodeState.LastSeen shows when it was alive.
	LivenessUnknown Liveness = ""
	// Alive is a node with a lease.
	Alive Liveness = "alive"
	// Dead is a node that had a lease and lost it. Its tasks may still run, so their
	// claims stay: time alone frees nothing.
	Dead Liveness = "dead"
)

// Liveness returns the liveness of a node at the time of the snapshot.
func (s *Snapshot) Liveness(node NodeState) Liveness {
	switch {
	case s.leases[node.Name]:
		return Alive
	case node.LeaseSeconds > 0:
		return Dead
	default:
		return LivenessUnknown
	}
}

// IsDead reports whether a node counts as dead: it has lost its lease, or has none and has
// been silent for the time Silence.
func (s *Snapshot) IsDead(node NodeState, now time.Time) bool {
	switch s.Liveness(node) {
	case Dead:
		return true
	case LivenessUnknown:
		return now.Sub(node.LastSeen) > Silence
	default:
		return false
	}
}

// lease renews the node's lease, if the store has leases, and records it in the state.
func (t *Table) lease(ctx context.Context, state *NodeState) error {
	leaser, ok := t.store.(Leaser)
	if !ok {
		return nil
	}
	if err := leaser.Lease(ctx, leaseKey(state.Name), []byte("{}"), LeaseTime); err != nil {
		return err
	}
	state.LeaseSeconds = int(LeaseTime.Seconds())
	return nil
}
