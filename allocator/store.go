// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import "context"

// Store keeps versioned values under keys. The table puts its rules over it.
// Every method returns an error that matches ErrUnavailable if the store
// cannot answer, ErrDenied if it refuses, and ErrClosed after Close. Its
// methods may be called concurrently. A store may be a Leaser as well, and a
// fmt.Stringer that names it in messages. storetest has the conformance suite.
type Store interface {
	// Get returns the entry under key as of now, never a stale one. A key
	// that does not exist has version 0 and a nil value.
	Get(ctx context.Context, key string) (Entry, error)

	// Watch returns all entries, by key, and the version of the whole, once
	// that version is no longer after. The version of the whole is never 0,
	// so Watch returns at once if after is 0. It returns ctx's error when ctx
	// ends, and may return early with nothing new. Versions go back when the
	// store's data is restored or wiped.
	Watch(ctx context.Context, after uint64) (entries []Entry, version uint64, err error)

	// Apply makes all the writes, of different keys, or none. It returns
	// ErrConflict if a key's version is not the one that its write names, and
	// ErrTooLarge if the store cannot write so much at once.
	Apply(ctx context.Context, writes []Write) error

	// Close releases what the store holds. Calls in progress end with
	// ErrClosed.
	Close() error
}

// Entry is a value and the version of its last change. Versions only grow; one
// is comparable only with another of the same key. A key that exists has a
// value that is not nil, though it may be empty.
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
