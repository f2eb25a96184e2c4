// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"time"
)

// LeaseTime is how long a node counts as alive after its device plugin last
// said so. It is several of its heartbeats, and longer than servers take to
// elect a leader.
const LeaseTime = 90 * time.Second

// Silence is how long a node without a lease may be silent: many of its heartbeats.
const Silence = 10 * time.Minute

// Leaser is what a Store may offer besides: keys that vanish when nobody looks
// after them. They say who is alive and nothing else. A claim never hangs on
// one.
type Leaser interface {
	// Lease keeps the key, with the value, until ttl after the last call for
	// it. Whoever calls next goes on with what is there, also another process.
	// The key may outlive its time for as long again.
	Lease(ctx context.Context, key string, value []byte, ttl time.Duration) error
}

// Liveness is what the table knows of a node's being there.
type Liveness string

const (
	// LivenessUnknown is that of a node which has no lease: its store has
	// none, or its token may not take one. NodeState.LastSeen is all there is.
	LivenessUnknown Liveness = ""
	// Alive is a node whose lease is there.
	Alive Liveness = "alive"
	// Dead is a node that had a lease and lost it. Its tasks may run all the
	// same, and their claims stay: nothing is freed by time alone.
	Dead Liveness = "dead"
)

// Liveness tells whether a node of the snapshot was there at that moment.
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

// IsDead reports whether a node must be taken for gone: its lease is lost, or it has
// none and has been silent for the time Silence.
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

// lease renews the node's lease, if the store has leases, and notes in the state
// that the node has one.
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
