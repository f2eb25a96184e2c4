package allocator

import "context"

// Reach asks the store one question, whose answer does not matter, and returns
// the store's error if there is none. It does not show whether writing is
// permitted.
func (t *Table) Reach(ctx context.Context) error {
	_, err := t.store.Get(ctx, NodeKey("reach"))
	return err
}
