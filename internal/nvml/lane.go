// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
)

// ErrHung is returned for a GPU, or for a whole snapshot, while an NVML call for it has not
// returned. It happens when a GPU's firmware stops answering, and lasts until the call
// returns.
var ErrHung = errors.New("NVML call does not return")

// lane runs readings that may hang, at most one at a time. One goroutine at a time uses it, and
// calls start and wait alternately.
type lane[T any] struct {
	result chan T // of the reading in flight; nil if there is none
	probe  *probe
	stuck  bool // the reading in flight was started by an earlier snapshot
}

// start begins a reading, unless the last one has not ended.
func (l *lane[T]) start(ctx context.Context, library *library, read func(*probe) T) {
	if l.stuck = l.busy(); l.stuck {
		return
	}
	result := make(chan T, 1)
	l.result, l.probe = result, &probe{ctx: ctx, library: library}
	go func(p *probe) { result <- read(p) }(l.probe)
}

// busy reports whether a reading is in flight. A result that nothing waited for is too old and
// is dropped.
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

// wait returns the result of the reading that start began. The error matches ErrHung after a
// timeout, and ctx's error if the caller cancelled.
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
	// The deadline may have passed while the caller waited for another lane.
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

// hung names the call, but not since when: Nomad gets the text as a reason, which must not
// change with every reading.
func (l *lane[T]) hung() error {
	if function := l.probe.current.Load(); function != nil {
		return fmt.Errorf("%w: %s", ErrHung, *function)
	}
	return fmt.Errorf("%w in time", ErrHung)
}
