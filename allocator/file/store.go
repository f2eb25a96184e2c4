// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"nomad-gpu-mem/allocator"
)

const (
	dirMode  = 0o755
	fileMode = 0o644
	lockMode = 0o600

	// lockPause is the pause between two attempts to lock. A write takes about as long.
	lockPause = 5 * time.Millisecond
)

// Store is the table in a file.
type Store struct {
	path   string
	closed context.Context
	close  context.CancelFunc
	last   lastRead
}

var _ allocator.Store = (*Store)(nil)

// New returns the store in the file of that path. The first write creates the file and its
// directory if they are missing.
func New(path string) *Store {
	s := &Store{path: filepath.Clean(path)}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// String names the store in messages.
func (s *Store) String() string { return "file " + s.path }

// Close ends the calls in progress, except those that already write.
func (s *Store) Close() error {
	s.close()
	s.last.forget()
	return nil
}

// Get returns the entry under key.
func (s *Store) Get(ctx context.Context, key string) (allocator.Entry, error) {
	if err := s.ended(ctx); err != nil {
		return allocator.Entry{}, err
	}
	table, err := s.read()
	if err != nil {
		return allocator.Entry{}, err
	}
	return table.get(key), nil
}

// Apply makes all the writes, or none, by replacing the file.
func (s *Store) Apply(ctx context.Context, writes []allocator.Write) error {
	if err := s.ended(ctx); err != nil || len(writes) == 0 {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), dirMode); err != nil {
		return explain(err)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	table, err := s.read()
	if err != nil {
		return err
	}
	next, err := table.after(writes)
	if err != nil {
		return err
	}
	text, err := next.encode()
	if err != nil {
		return fmt.Errorf("file %s: %w", s.path, err)
	}
	if err := replace(s.path, text); err != nil {
		return explain(err)
	}
	s.last.remember(s.path, next) // no other process writes before unlock
	return nil
}

// lock waits for the write lock. The lock file is never removed: otherwise two processes
// could hold locks on two files of one name.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	lock := flock.New(s.path+".lock", flock.SetPermissions(lockMode))
	if _, err := lock.TryLockContext(waiting, lockPause); err != nil {
		if ended := s.ended(ctx); ended != nil {
			return nil, ended
		}
		return nil, explain(err)
	}
	return func() { _ = lock.Unlock() }, nil
}

// ended returns an error if the store is closed or ctx has ended.
func (s *Store) ended(ctx context.Context) error {
	if s.closed.Err() != nil {
		return allocator.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("file %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) read() (*table, error) {
	table, err := s.last.read(s.path)
	switch {
	case err == nil:
		return table, nil
	case errors.Is(err, os.ErrNotExist):
		return newTable(), nil
	case errors.Is(err, allocator.ErrNewer):
		return nil, fmt.Errorf("file %s: %w", s.path, err)
	case errors.Is(err, allocator.ErrUnreadable):
		return nil, fmt.Errorf("file %s: %w; repair it, or move it away to start with an empty table", s.path, err)
	default:
		return nil, explain(err)
	}
}

// explain adds the table's sentinel to an error of the file system, which names the path.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: %w", allocator.ErrDenied, err)
	default:
		return fmt.Errorf("%w: %w", allocator.ErrUnavailable, err)
	}
}
