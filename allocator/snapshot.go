package allocator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Snapshot is the whole table at one version.
type Snapshot struct {
	Version  uint64
	Nodes    []NodeState // by name
	GPUs     []GPU       // by node and index
	Problems []Problem   // values that could not be read, by key
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

// Problem is a key of the table whose value cannot be read.
type Problem struct {
	Key string
	Err error
}

// Snapshot reads the whole table.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) { return t.Watch(ctx, 0) }

// Watch reads the whole table once its version is no longer after. It may
// return early with nothing new: compare versions.
func (t *Table) Watch(ctx context.Context, after uint64) (*Snapshot, error) {
	entries, version, err := t.store.Watch(ctx, after)
	if err != nil {
		return nil, err
	}
	return newSnapshot(entries, version), nil
}

func newSnapshot(entries []Entry, version uint64) *Snapshot {
	s := &Snapshot{Version: version}
	gpus := map[GPUID]*GPU{}
	for _, entry := range entries {
		if err := s.add(entry, gpus); err != nil {
			s.Problems = append(s.Problems, Problem{Key: entry.Key, Err: err})
		}
	}
	for _, gpu := range gpus {
		s.GPUs = append(s.GPUs, *gpu)
	}
	slices.SortFunc(s.Nodes, func(a, b NodeState) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.GPUs, func(a, b GPU) int {
		return cmp.Or(strings.Compare(a.State.Node, b.State.Node),
			cmp.Compare(a.State.Index, b.State.Index), strings.Compare(string(a.ID), string(b.ID)))
	})
	return s
}

// add puts one entry into the snapshot. Keys that the table does not know are
// left alone: they may belong to a newer version.
func (s *Snapshot) add(entry Entry, gpus map[GPUID]*GPU) error {
	if _, ok := parseNodeKey(entry.Key); ok {
		node, err := decodeState[NodeState](entry.Value)
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, node)
		return nil
	}
	id, suffix, ok := parseGPUKey(entry.Key)
	if !ok || suffix != stateSuffix && suffix != claimsSuffix && suffix != cordonSuffix {
		return nil
	}
	gpu := gpus[id]
	if gpu == nil {
		gpu = &GPU{ID: id, Ledger: &Ledger{Version: ledgerVersion}}
		gpus[id] = gpu
	}
	var err error
	switch suffix {
	case stateSuffix:
		gpu.State, err = decodeState[GPUState](entry.Value)
	case claimsSuffix:
		gpu.Ledger, err = DecodeLedger(entry.Value)
	case cordonSuffix:
		gpu.Cordon = decodeCordon(entry.Value)
	}
	if err != nil {
		return fmt.Errorf("GPU %s: %w", id, err)
	}
	return nil
}
