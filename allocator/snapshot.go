// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Snapshot is the whole table at one version.
type Snapshot struct {
	Version  uint64
	Nodes    []NodeState // by name
	GPUs     []GPU       // by node and index
	Problems []Problem   // values that could not be read, by key

	leases map[NodeName]bool // nodes with a lease
}

// GPU is one GPU of a snapshot.
type GPU struct {
	ID     GPUID
	State  GPUState // zero if no device plugin reported it, or it could not be read
	Ledger *Ledger  // nil if it could not be read
	Cordon *Cordon  // nil if new tasks may have it
}

// Claims returns the GPU's claims by first unit.
func (g GPU) Claims() []Claim {
	if g.Ledger == nil {
		return nil
	}
	return g.Ledger.Claims()
}

// Problem is a key of the table with an unreadable value.
type Problem struct {
	Key string
	Err error
}

// Snapshot reads the whole table.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) { return t.Watch(ctx, 0) }

// Watch reads the whole table once its version differs from after. It may return early
// without a change: compare versions. It decodes only values that changed since an earlier
// call. Snapshots share unchanged values, so callers must not modify them. Expired claims are
// left out.
func (t *Table) Watch(ctx context.Context, after uint64) (*Snapshot, error) {
	entries, version, err := t.store.Watch(ctx, after)
	if err != nil {
		return nil, err
	}
	return newSnapshot(t.decoder.decode(entries), version, t.now()), nil
}

func newSnapshot(records []record, version uint64, now time.Time) *Snapshot {
	s := &Snapshot{Version: version, leases: map[NodeName]bool{}}
	gpus := make(map[GPUID]*GPU, len(records)/2)
	for _, record := range records {
		if record.err != nil {
			s.Problems = append(s.Problems, Problem{Key: record.key, Err: record.err})
		}
		switch value := record.value.(type) {
		case *NodeState:
			s.Nodes = append(s.Nodes, *value)
		case leaseOf:
			s.leases[NodeName(value)] = true
		case *GPUState:
			gpuIn(gpus, record.gpu).State = *value
		case *Ledger:
			gpuIn(gpus, record.gpu).Ledger = value.shown(now)
		case *Cordon:
			gpuIn(gpus, record.gpu).Cordon = value
		}
	}
	s.GPUs = make([]GPU, 0, len(gpus))
	for _, gpu := range gpus {
		s.GPUs = append(s.GPUs, *gpu)
	}
	slices.SortFunc(s.Nodes, func(a, b NodeState) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.GPUs, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.State.Node, b.State.Node),
			cmp.Compare(a.State.Index, b.State.Index), cmp.Compare(a.ID, b.ID))
	})
	return s
}

func gpuIn(gpus map[GPUID]*GPU, id GPUID) *GPU {
	gpu := gpus[id]
	if gpu == nil {
		gpu = &GPU{ID: id, Ledger: &Ledger{Version: ledgerVersion}}
		gpus[id] = gpu
	}
	return gpu
}

// shown returns the ledger without expired claims. A nil (unreadable) ledger stays nil.
func (l *Ledger) shown(now time.Time) *Ledger {
	if l == nil {
		return nil
	}
	for _, claim := range l.Marks {
		if claim.Expired(now) {
			return l.current(now)
		}
	}
	return l
}
