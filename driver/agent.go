package driver

import (
	"sync"
	"time"
)

// agentWatch knows whether a Nomad agent is connected. An agent keeps streams open as long
// as it runs: of fingerprints, of events, and one for each task whose end it waits for. The
// plugin outlives an agent that crashes, and the next agent connects to it again.
type agentWatch struct {
	mu      sync.Mutex
	streams map[*stream]bool
	left    time.Time // when the last stream was closed
}

type stream struct{ opened time.Time }

// open notes a stream that an agent has opened, until done is called.
func (a *agentWatch) open(now func() time.Time) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams == nil {
		a.streams = map[*stream]bool{}
	}
	opened := &stream{now()}
	a.streams[opened] = true
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.streams, opened)
		a.left = now()
	})
}

// state reports whether an agent is connected, and since when that is so: since its oldest
// stream was opened, for those of an earlier agent may close a little later.
func (a *agentWatch) state() (connected bool, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) == 0 {
		return false, a.left
	}
	since = time.Now()
	for s := range a.streams {
		if s.opened.Before(since) {
			since = s.opened
		}
	}
	return true, since
}

// mentions notes Nomad's calls about one task.
type mentions struct {
	mu      sync.Mutex
	last    time.Time
	waiting int // open calls of WaitTask
}

// note notes a call that was made at that time. The calls of a crashed agent may end after those of the next.
func (m *mentions) note(called time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if called.After(m.last) {
		m.last = called
	}
}

// wait notes an open call of WaitTask, until done is called.
func (m *mentions) wait(now func() time.Time) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting++
	m.last = now()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.waiting--
	}
}

// noneSince reports whether no call about the task was made since then, and none is open.
func (m *mentions) noneSince(since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting == 0 && m.last.Before(since)
}
