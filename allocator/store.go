// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import "context"

// Store keeps versioned values under keys; Table applies its rules to it. Every method
// returns an error that matches ErrUnavailable if the store cannot answer, ErrDenied if it
// denies the request, and ErrClosed after Close. It is safe for concurrent use. A store may
// also be a Leaser, and a fmt.Stringer that names it in messages. storetest has the
// conformance suite.
type Store interface {
	// Get returns the current entry under key, never a stale one. A missing key has version
	// 0 and a nil value.
	Get(ctx context.Context, key string) (Entry, error)

	// Watch returns all entries, by key, and the version of the whole store, once that
	// version differs from after. That version is never 0, so Watch returns at once if
	// after is 0. It returns ctx's error when ctx ends, and may return early without a
	// change. Versions decrease when the store's data is restored or wiped.
	Watch(ctx context.Context, after uint64) (entries []Entry, version uint64, err error)

	// Apply makes all the writes, of different keys, or none. It returns
	// ErrConflict if a key's version is not that of its write, and ErrTooLarge if the
	// store cannot write that much at once.
	Apply(ctx context.Context, writes []Write) error

	// Close releases the store's resources. Calls in progress end with ErrClosed.
	Close() error
}

// Entry is a value and the version of its last change. Versions only grow, and are comparable
// only for the same key. An existing key has a non-nil value, which may be empty.
type Entry struct {
	Key     string
	Value   []byte
	Version uint64
}

// Write replaces the value under a key, if the key's version is still Version.
// Version 0 means that the key must not exist. A nil value deletes the key.
type Write struct {
	Key     string
	Value   []byte
	Version uint64
}
