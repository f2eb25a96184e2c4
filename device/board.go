// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import "sync"

// board holds the newest value of something, such as the inventory. One loop writes it; read
// returns a channel that signals the next value.
type board[T any] struct {
	mu      sync.Mutex
	newest  T
	changed chan struct{} // closed when newest is replaced
}

func newBoard[T any]() *board[T] { return &board[T]{changed: make(chan struct{})} }

// post replaces the value, which must not be modified afterwards.
func (b *board[T]) post(newest T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replace(newest)
}

// replace is post for a caller that holds b.mu.
func (b *board[T]) replace(newest T) {
	b.newest = newest
	close(b.changed)
	b.changed = make(chan struct{})
}

// read returns the newest value and a channel that is closed when it is replaced.
func (b *board[T]) read() (T, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest, b.changed
}
