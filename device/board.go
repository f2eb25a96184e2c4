package device

import "sync"

// board holds the newest inventory. One loop writes it; whoever reads it is
// told when there is a newer one.
type board struct {
	mu      sync.Mutex
	newest  inventory
	changed chan struct{} // closed when newest is replaced
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// post replaces the inventory. Inventories on the board are never modified.
func (b *board) post(i inventory) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = i
	close(b.changed)
	b.changed = make(chan struct{})
}

// read returns the newest inventory and a channel that closes when there is a
// newer one.
func (b *board) read() (inventory, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest, b.changed
}
