package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PurgeKey deletes a value that cannot be read, so that its GPU or node can be
// used again. Tasks that run there assert their claims again within a minute.
// What can be read by now is left alone: the error matches ErrConflict.
func (t *Table) PurgeKey(ctx context.Context, key string) error {
	entry, err := t.store.Get(ctx, key)
	if err != nil || entry.Version == 0 {
		return err
	}
	if newRecord(entry).err == nil {
		return fmt.Errorf("key %s can be read by now: %w", key, ErrConflict)
	}
	return t.store.Apply(ctx, []Write{{Key: key, Version: entry.Version}})
}

// PurgeNode deletes all that the table has of a node: its GPUs with their
// claims, then the node. It must be certain that none of its tasks runs. If the
// node was seen after lastSeen it lives, and the error matches ErrConflict. It
// goes GPU by GPU: what was interrupted can be repeated.
func (t *Table) PurgeNode(ctx context.Context, name string, lastSeen time.Time) error {
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
	var failed []error
	for i, record := range records {
		if gpus[record.gpu] {
			failed = append(failed, t.store.Apply(ctx, []Write{{Key: record.key, Version: entries[i].Version}}))
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
