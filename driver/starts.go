// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/nomad/plugins/drivers"
)

// errGivenUp is the cause with which a start ends when Nomad starts the same task again.
var errGivenUp = errors.New("Nomad has started the task again")

// starts are the calls of StartTask under way, at most one for each task. An agent that
// crashes leaves its calls running in the plugin, and the next agent starts the tasks
// again.
type starts struct {
	mu sync.Mutex
	by map[taskKey]*underWay
}

// taskKey identifies a task over all of its starts.
type taskKey struct{ alloc, task string }

type underWay struct {
	id     string
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the call is about to return
}

func newStarts() *starts { return &starts{by: map[taskKey]*underWay{}} }

// begin registers a call, which then works in the returned context and calls end. If
// another call for the task is under way, begin registers nothing and returns what is
// closed at that call's end. An earlier start is cancelled; the same one is left alone.
func (s *starts) begin(ctx context.Context, task *drivers.TaskConfig) (run context.Context, end func(), earlier <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := taskKey{task.AllocID, task.Name}
	if current, found := s.by[key]; found {
		if current.id != task.ID {
			current.cancel(errGivenUp)
		}
		return nil, nil, current.done
	}
	run, cancel := context.WithCancelCause(ctx)
	current := &underWay{id: task.ID, cancel: cancel, done: make(chan struct{})}
	s.by[key] = current
	return run, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.by, key)
		cancel(nil)
		close(current.done)
	}, nil
}

// count returns how many calls are under way.
func (s *starts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by)
}
