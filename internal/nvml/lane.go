// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
)

// ErrHung is the error of a GPU, or of a whole snapshot, while an NVML call
// about it has not returned. It is seen from time to time when a GPU's
// firmware stops answering; only the call's return ends it.
var ErrHung = errors.New("NVML call does not return")

// lane runs readings that may hang, never more than one at a time. It is used
// by one goroutine at a time, with start and wait in turn.
type lane[T any] struct {
	result chan T // of the reading in flight; nil if there is none
	probe  *probe
	stuck  bool // the reading in flight was started by an earlier snapshot
}

// start begins a reading, unless the one before has not ended.
func (l *lane[T]) start(ctx context.Context, library *library, read func(*probe) T) {
	if l.stuck = l.busy(); l.stuck {
		return
	}
	result := make(chan T, 1)
	l.result, l.probe = result, &probe{ctx: ctx, library: library}
	go func(p *probe) { result <- read(p) }(l.probe)
}

// busy reports whether a reading is in flight. The result of one whose waiter
// has left is too old to be of use.
func (l *lane[T]) busy() bool {
	if l.result == nil {
		return false
	}
	select {
	case <-l.result:
		l.result = nil
		return false
	default:
		return true
	}
}

// wait returns the result of the reading that start began. The error matches
// ErrHung if there is none in time, and ctx's error if the caller gave up.
func (l *lane[T]) wait(ctx context.Context) (T, error) {
	var none T
	if l.stuck {
		return none, l.hung()
	}
	select {
	case value := <-l.result:
		l.result = nil
		return value, nil
	case <-ctx.Done():
	}
	// The time may have gone by while another lane was waited for.
	select {
	case value := <-l.result:
		l.result = nil
		return value, nil
	default:
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return none, l.hung()
	}
	return none, ctx.Err()
}

// hung names the call, but not since when: the text becomes the reason that
// Nomad is told, and must not change with every reading.
func (l *lane[T]) hung() error {
	if function := l.probe.current.Load(); function != nil {
		return fmt.Errorf("%w: %s", ErrHung, *function)
	}
	return fmt.Errorf("%w in time", ErrHung)
}
