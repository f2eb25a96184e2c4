// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PurgeKey deletes a value that cannot be read, so that its GPU or node can be
// used again. Tasks that run there assert their claims again within a minute.
// What can be read by now is left alone: the error matches ErrConflict. So is what a
// newer version wrote: the error matches ErrNewer.
func (t *Table) PurgeKey(ctx context.Context, key string) error {
	entry, err := t.store.Get(ctx, key)
	if err != nil || entry.Version == 0 {
		return err
	}
	if err := newerEntry(entry); err != nil {
		return err
	}
	if newRecord(entry).err == nil {
		return fmt.Errorf("key %s can be read by now: %w", key, ErrConflict)
	}
	return t.store.Apply(ctx, []Write{{Key: key, Version: entry.Version}})
}

// PurgeNode deletes all that the table has of a node: its GPUs with their
// claims, then the node. Claims that name another node stay, with the GPU's cordon: the
// GPU is there now, and their tasks may run. So do those of which spare says that their
// tasks may run; it may be nil. If the node was seen after lastSeen it lives, and the error matches
// ErrConflict. It goes GPU by GPU: what was interrupted can be repeated. What a newer
// version wrote stays, and so does the node: the error matches ErrNewer.
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
	inUse := map[GPUID]*Ledger{} // what is left of ledgers that others have claims in
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

// purge deletes one value of a GPU, as far as left does not need it: the claims of
// other nodes, if there are some.
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

// without returns a copy of the ledger without the node's claims, but for those to spare.
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
