// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"context"
	"slices"
	"sync"
)

// xidWatch waits for Xids in a separate goroutine: of several that arrive while nothing waits,
// NVML returns only the last code, but the first often matters most. Its fields belong to the
// holder of the Reader's turn; inbox is shared with the goroutine.
type xidWatch struct {
	inbox   *xidInbox
	gpus    []string  // UUIDs that are watched and have answered since then
	current *listener // nil if nothing is watched
	last    *listener // the previous one, which may not have ended yet
}

// listener is one goroutine that waits for Xids.
type listener struct {
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended
}

// follow watches these GPUs from now on. A new GPU, or one that returns after a loss, needs a
// new listener. The old one is stopped only when the new one has registered all GPUs, so that
// no Xid of the others is lost in between; an Xid that both receive is reported twice. At most
// two listeners exist: while the previous one is stuck in NVML, the change waits for a later
// call.
func (w *xidWatch) follow(library *library, gpus []string) {
	isNew := func(gpu string) bool { return !slices.Contains(w.gpus, gpu) }
	switch {
	case !slices.ContainsFunc(gpus, isNew):
		w.gpus = gpus
		return
	case !w.last.ended():
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.gpus, w.last, w.current = gpus, w.current, &listener{stop: cancel, done: make(chan struct{})}
	go w.current.listen(&probe{ctx: ctx, library: library}, gpus, w.inbox, w.last)
}

// listen runs until the probe's context ends, or NVML fails to report Xids.
func (l *listener) listen(p *probe, gpus []string, inbox *xidInbox, before *listener) {
	defer close(l.done)
	defer before.end()
	err := watchXids(p, gpus, inbox, before.end)
	if p.ctx.Err() == nil { // else the next listener reports it
		inbox.refuse(err)
	}
}

// end cancels the listener, which may be nil.
func (l *listener) end() {
	if l != nil {
		l.stop()
	}
}

// ended reports whether the goroutine has ended. A nil listener has none.
func (l *listener) ended() bool {
	if l == nil {
		return true
	}
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// end stops the watch and reports whether it has ended.
func (w *xidWatch) end() bool {
	w.last.end()
	w.current.end()
	if !w.last.ended() || !w.current.ended() {
		return false
	}
	w.last, w.current, w.gpus = nil, nil, nil
	return true
}

// endWithin is end, but waits until ctx ends.
func (w *xidWatch) endWithin(ctx context.Context) bool {
	if w.end() {
		return true
	}
	for _, l := range []*listener{w.last, w.current} {
		if l == nil {
			continue
		}
		select {
		case <-l.done:
		case <-ctx.Done():
		}
	}
	return w.end()
}

// xidInbox has the Xids that were received and not yet fetched.
type xidInbox struct {
	mu      sync.Mutex
	xids    []Xid
	refused error
}

// fetch returns the Xids since the last call, and why NVML does not report the Xids of some
// GPU, or nil.
func (i *xidInbox) fetch() ([]Xid, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	xids := i.xids
	i.xids = nil
	return xids, i.refused
}

func (i *xidInbox) put(x Xid) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.xids = append(i.xids, x)
}

func (i *xidInbox) refuse(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused = err
}
