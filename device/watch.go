// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/tellonce"
)

const (
	// lookTimeout bounds one look at all GPUs' claims and cordons.
	lookTimeout = 10 * time.Second
	// firstLook bounds how long the offer of a new GPU waits for its claims:
	// tasks from before a restart of the agent may hold units of it.
	firstLook = 500 * time.Millisecond
)

// watch looks at the claims and cordons of this node's GPUs, again and again.
// Nothing waits for it but the first offer of a GPU. When the table cannot be
// read, what it said last counts.
//
// It asks for its own GPUs only: to be told of every change of the table would
// cost a cluster the square of its nodes.
type watch struct {
	logger hclog.Logger
	table  *lazyTable
	period time.Duration

	gpus *board[[]allocator.GPUID] // to look at; posted by the poll
	view *board[view]              // posted when it is another
}

// view is what the watch has found.
type view struct {
	gpus   tableView
	failed bool // the last look met an error
}

func newWatch(logger hclog.Logger, table *lazyTable, period time.Duration) *watch {
	return &watch{logger: logger, table: table, period: period,
		gpus: newBoard[[]allocator.GPUID](), view: newBoard[view]()}
}

// run looks until ctx ends: each period, and at once when there is a new GPU.
func (w *watch) run(ctx context.Context) {
	defer w.table.close(w.logger)
	var fault tellonce.Last
	for {
		gpus, more := w.gpus.read()
		before, _ := w.view.read()
		now, err := w.look(ctx, gpus, before)
		if ctx.Err() != nil {
			return
		}
		w.tell(err, &fault)
		if !reflect.DeepEqual(before, now) {
			w.view.post(now)
		}
		timer := time.NewTimer(w.period)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-more:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// look reads each GPU's claims and cordon. One that cannot be read keeps what
// was known of it, and is marked if that is so because its value makes no sense.
func (w *watch) look(ctx context.Context, gpus []allocator.GPUID, before view) (view, error) {
	if len(gpus) == 0 {
		return before, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now := view{gpus: tableView{}}
	var errs []error
	table, err := w.table.get()
	if err != nil {
		return view{gpus: before.gpus, failed: true}, err
	}
	for _, id := range gpus {
		found, err := table.Inspect(ctx, id)
		if err == nil {
			now.gpus[id] = tableEntry{GPU: found}
			continue
		}
		errs = append(errs, fmt.Errorf("GPU %s: %w", id, err))
		known, ok := before.gpus[id]
		if errors.Is(err, allocator.ErrUnreadable) { // what tasks are refused with as well
			known.ID, known.spoilt = id, true
		} else if !ok {
			continue
		}
		now.gpus[id] = known
	}
	now.failed = len(errs) > 0
	return now, errors.Join(errs...)
}

// tell reports a fault once, and its end.
func (w *watch) tell(err error, fault *tellonce.Last) {
	switch isNew, isOver := fault.NoteError(err); {
	case isOver:
		w.logger.Info("claims and cordons of GPUs are read again")
	case isNew:
		w.logger.Warn("cannot read claims and cordons of GPUs; what was known of them counts", "error", err)
	}
}

// of returns what is known of these GPUs. For one that is new it waits, but not
// for long and not for a table that fails.
func (w *watch) of(ctx context.Context, gpus []allocator.GPUID) tableView {
	if last, _ := w.gpus.read(); !slices.Equal(last, gpus) {
		w.gpus.post(gpus)
	}
	patience := time.NewTimer(firstLook)
	defer patience.Stop()
	for {
		now, changed := w.view.read()
		isMissing := func(id allocator.GPUID) bool { _, ok := now.gpus[id]; return !ok }
		if now.failed || !slices.ContainsFunc(gpus, isMissing) {
			return maps.Clone(now.gpus)
		}
		select {
		case <-changed:
		case <-patience.C:
			return maps.Clone(now.gpus)
		case <-ctx.Done():
			return maps.Clone(now.gpus)
		}
	}
}
