// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"nomad-gpu-mem/allocator"
)

// Memory is a store in memory. Tests can make it fail as real stores do.
type Memory struct {
	mu      sync.Mutex
	version uint64
	entries map[string]allocator.Entry
	changed chan struct{} // closed and replaced at every change
	closed  bool
	outage  error
	faults  []fault
}

// fault is the fate of one call of Apply.
type fault struct {
	err     error
	applied bool
}

var _ allocator.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{version: 1, entries: map[string]allocator.Entry{}, changed: make(chan struct{})}
}

// Fail makes every call return err, including waiting calls, until it is called with nil. Use
// it for outages and missing permissions.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outage = err
	m.wake()
}

// FailApply makes the next call of Apply return err. If applied is true its
// writes are made all the same, as when the answer of a store is lost. Several
// failures queue up.
func (m *Memory) FailApply(err error, applied bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, fault{err, applied})
}

// Get returns the entry under key.
func (m *Memory) Get(ctx context.Context, key string) (allocator.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ended(ctx); err != nil {
		return allocator.Entry{}, err
	}
	entry := m.entries[key]
	entry.Key, entry.Value = key, bytes.Clone(entry.Value)
	return entry, nil
}

// Apply makes all the writes or none.
func (m *Memory) Apply(ctx context.Context, writes []allocator.Write) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ended(ctx); err != nil || len(writes) == 0 {
		return err
	}
	if len(m.faults) == 0 {
		return m.apply(writes)
	}
	next := m.faults[0]
	m.faults = m.faults[1:]
	if next.applied {
		if err := m.apply(writes); err != nil {
			return err
		}
	}
	return next.err
}

func (m *Memory) apply(writes []allocator.Write) error {
	for _, write := range writes {
		if have := m.entries[write.Key].Version; have != write.Version {
			return fmt.Errorf("key %s has version %d, expected %d: %w", write.Key, have, write.Version, allocator.ErrConflict)
		}
	}
	m.version++
	for _, write := range writes {
		if write.Value == nil {
			delete(m.entries, write.Key)
			continue
		}
		m.entries[write.Key] = allocator.Entry{Key: write.Key, Value: bytes.Clone(write.Value), Version: m.version}
	}
	m.wake()
	return nil
}

// Watch returns all entries once the version is no longer after.
func (m *Memory) Watch(ctx context.Context, after uint64) ([]allocator.Entry, uint64, error) {
	for {
		entries, version, changed, err := m.all(ctx)
		if err != nil {
			return nil, 0, err
		}
		if version != after {
			return entries, version, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (m *Memory) all(ctx context.Context) ([]allocator.Entry, uint64, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ended(ctx); err != nil {
		return nil, 0, nil, err
	}
	var entries []allocator.Entry
	for _, key := range slices.Sorted(maps.Keys(m.entries)) {
		entry := m.entries[key]
		entry.Value = bytes.Clone(entry.Value)
		entries = append(entries, entry)
	}
	return entries, m.version, m.changed, nil
}

// Close ends the calls in progress.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
	return nil
}

func (m *Memory) ended(ctx context.Context) error {
	switch {
	case m.closed:
		return allocator.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return m.outage
	}
}

func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}
