// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PurgeKey deletes an unreadable value, so that its GPU or node can be used again. The driver
// asserts the claims of running tasks there within a minute. A value that is readable by now
// stays: the error matches ErrConflict. So does a newer version's: the error matches
// ErrNewer.
func (t *Table) PurgeKey(ctx context.Context, key string) error {
	entry, err := t.store.Get(ctx, key)
	if err != nil || entry.Version == 0 {
		return err
	}
	if err := newerEntry(entry); err != nil {
		return err
	}
	if newRecord(entry).err == nil {
		return fmt.Errorf("key %s is readable by now: %w", key, ErrConflict)
	}
	return t.store.Apply(ctx, []Write{{Key: key, Version: entry.Version}})
}

// PurgeNode deletes a node's entries: its GPUs with their claims, then the node. Claims that
// name another node stay, with the GPU's cordon: the GPU is in that node now, and their tasks
// may run. Claims for which spare returns true stay too; spare may be nil. If the node was
// seen after lastSeen, it is alive, and the error matches ErrConflict. PurgeNode works GPU by
// GPU, so an interrupted call can be repeated. Values of a newer version stay, and so does
// the node: the error matches ErrNewer.
func (t *Table) PurgeNode(ctx context.Context, name NodeName, lastSeen time.Time, spare func(Claim) bool) error {
	entries, _, err := t.store.Watch(ctx, 0)
	if err != nil {
		return err
	}
	records := t.decoder.decode(entries)
	gpus := map[GPUID]bool{}
	for _, record := range records {
		switch value := record.value.(type) {
		case *NodeState:
			if value.Name == name && value.LastSeen.After(lastSeen) {
				return fmt.Errorf("node %s was seen at %s: %w", name, value.LastSeen.Format(time.RFC3339), ErrConflict)
			}
		case *GPUState:
			gpus[record.gpu] = gpus[record.gpu] || record.err == nil && value.Node == name
		}
	}
	inUse := map[GPUID]*Ledger{} // remaining ledgers with claims of other nodes
	for _, record := range records {
		if ledger, ok := record.value.(*Ledger); ok && record.err == nil && gpus[record.gpu] {
			if left := ledger.without(name, spare); len(left.Marks) > 0 {
				inUse[record.gpu] = left
			}
		}
	}
	var failed []error
	for i, record := range records {
		if err := newerEntry(entries[i]); err != nil && (gpus[record.gpu] || record.key == NodeKey(name)) {
			failed = append(failed, err)
		} else if gpus[record.gpu] {
			failed = append(failed, t.purge(ctx, record, entries[i].Version, inUse[record.gpu]))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	node, err := t.store.Get(ctx, NodeKey(name))
	if err != nil || node.Version == 0 {
		return err
	}
	return t.store.Apply(ctx, []Write{{Key: node.Key, Version: node.Version}})
}

// purge deletes one value of a GPU, unless left, the remaining claims of other nodes, needs
// it.
func (t *Table) purge(ctx context.Context, record record, version uint64, left *Ledger) error {
	write := Write{Key: record.key, Version: version}
	switch record.value.(type) {
	case *Ledger:
		if left == nil {
			break
		}
		value, err := left.Encode()
		if err != nil {
			return fmt.Errorf("key %s: %w", record.key, err)
		}
		write.Value = value
	case *Cordon:
		if left != nil {
			return nil
		}
	}
	return t.store.Apply(ctx, []Write{write})
}

// without returns a copy of the ledger without the node's claims, except those to spare.
func (l *Ledger) without(node NodeName, spare func(Claim) bool) *Ledger {
	left := l.clone()
	for mark, claim := range l.Marks {
		if spare != nil && spare(claim) {
			continue
		}
		if claim.NodeName == "" || claim.IsOn(node) {
			left.drop(mark)
		}
	}
	return left
}
