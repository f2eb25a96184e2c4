// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// event is an event of the event stream.
type event struct {
	Topic, Type, Key string
	Index            uint64
	Payload          map[string]any
}

// eventLog holds all events, and streams them to clients.
type eventLog struct {
	mu     sync.Mutex
	events []event
	more   chan struct{} // closed and replaced when an event is added
	asked  []uint64      // start index of each requested stream
	denied bool
}

// Emit adds an event to the event stream.
func (s *Server) Emit(topic api.Topic, kind, key string, payload map[string]any) {
	s.events.add(string(topic), kind, key, payload)
}

// Streams returns the start index of each event stream requested so far.
func (s *Server) Streams() []uint64 {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	return slices.Clone(s.events.asked)
}

// DenyStreams denies the event stream, as Nomad does for a token without the rights.
func (s *Server) DenyStreams() {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	s.events.denied = true
}

func (l *eventLog) add(topic, kind, key string, payload map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{Topic: topic, Type: kind, Key: key, Index: uint64(len(l.events) + 2), Payload: payload})
	close(l.more)
	l.more = make(chan struct{})
}

// since returns the events from an index on, and a channel that is closed at the next one.
func (l *eventLog) since(index uint64) ([]event, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.events, func(e event) bool { return e.Index >= index })
	if at < 0 {
		return nil, l.more
	}
	return slices.Clone(l.events[at:]), l.more
}

func (l *eventLog) open(index uint64) (allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, index)
	return !l.denied
}

// serve streams events until the client disconnects.
func (l *eventLog) serve(w http.ResponseWriter, r *http.Request) {
	index, _ := strconv.ParseUint(r.FormValue("index"), 10, 64)
	if !l.open(index) {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	wanted := map[string]bool{}
	for _, topic := range r.Form["topic"] {
		name, _, _ := strings.Cut(topic, ":")
		wanted[name] = true
	}
	encoder := json.NewEncoder(w)
	_ = encoder.Encode(struct{}{}) // a heartbeat
	for {
		events, more := l.since(index)
		for _, e := range events {
			index = e.Index + 1
			if wanted[e.Topic] {
				_ = encoder.Encode(map[string]any{"Index": e.Index, "Events": []event{e}})
			}
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		}
	}
}
