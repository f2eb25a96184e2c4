// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"maps"
	"slices"
	"sync"
)

// tasks are the tasks that this process manages, by Nomad's task config ID.
type tasks struct {
	mu sync.RWMutex
	by map[string]*handle
}

func newTasks() *tasks { return &tasks{by: map[string]*handle{}} }

func (t *tasks) get(id string) (*handle, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	h, ok := t.by[id]
	return h, ok
}

func (t *tasks) put(h *handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[h.task.ID] = h
}

// remove reports whether the task was still there.
func (t *tasks) remove(h *handle) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[h.task.ID] != h {
		return false
	}
	delete(t.by, h.task.ID)
	return true
}

func (t *tasks) all() []*handle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.by))
}
