// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"nomad-gpu-mem/allocator"
)

// pollTime is how often the file is checked in any case: not every file system reports
// changes, and the directory may not exist yet.
const pollTime = time.Second

// Watch returns all entries once the file's version is no longer after.
func (s *Store) Watch(ctx context.Context, after uint64) ([]allocator.Entry, uint64, error) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		// The directory, since a watch on the file would stay on the replaced one.
		_ = watcher.Add(filepath.Dir(s.path))
	} else {
		watcher = &fsnotify.Watcher{} // sends no events: polling is enough
	}
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	for {
		if err := s.ended(ctx); err != nil {
			return nil, 0, err
		}
		table, err := s.read() // after the watch began, so that no change is missed
		if err != nil {
			return nil, 0, err
		}
		if table.Version != after {
			return table.all(), table.Version, nil
		}
		s.wait(ctx, watcher, poll.C)
	}
}

// wait returns when the file may have changed, or ctx or the store has ended.
func (s *Store) wait(ctx context.Context, watcher *fsnotify.Watcher, poll <-chan time.Time) {
	for {
		select {
		case event := <-watcher.Events:
			if filepath.Base(event.Name) == filepath.Base(s.path) {
				return
			}
		case <-watcher.Errors: //nolint:errcheck // events were lost, so the file must be checked
			return
		case <-poll:
			return
		case <-ctx.Done():
			return
		case <-s.closed.Done():
			return
		}
	}
}
