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
	// lookTimeout bounds one reading of all GPUs' claims and cordons.
	lookTimeout = 10 * time.Second
	// firstLook bounds how long the offer of a new GPU waits for its claims:
	// tasks from before a restart of the agent may hold units of it.
	firstLook = 500 * time.Millisecond
)

// watch polls the claims and cordons of this node's GPUs. Only the first offer of a GPU waits
// for it. While the table cannot be read, its last state counts.
//
// It reads its own GPUs only: if each node watched the whole table, the load would grow with
// the square of the nodes.
type watch struct {
	logger hclog.Logger
	table  *lazyTable
	period time.Duration

	gpus *board[[]allocator.GPUID] // to read; posted by the poll
	view *board[view]              // posted when it changes
}

// view is the result of the watch.
type view struct {
	gpus   tableView
	failed bool // the last reading had an error
}

func newWatch(logger hclog.Logger, table *lazyTable, period time.Duration) *watch {
	return &watch{logger: logger, table: table, period: period,
		gpus: newBoard[[]allocator.GPUID](), view: newBoard[view]()}
}

// run reads until ctx ends: each period, and at once for a new GPU.
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
		w.report(err, &fault)
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

// look reads each GPU's claims and cordon. A GPU that cannot be read keeps its last entry,
// marked spoilt if its value is unreadable.
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
		if errors.Is(err, allocator.ErrUnreadable) { // the error of tasks that start there, too
			known.ID, known.spoilt = id, true
		} else if !ok {
			continue
		}
		now.gpus[id] = known
	}
	now.failed = len(errs) > 0
	return now, errors.Join(errs...)
}

// report logs a fault once, and its end.
func (w *watch) report(err error, fault *tellonce.Last) {
	switch isNew, isOver := fault.NoteError(err); {
	case isOver:
		w.logger.Info("claims and cordons of GPUs are read again")
	case isNew:
		w.logger.Warn("cannot read claims and cordons of GPUs; using the last known ones", "error", err)
	}
}

// of returns the known entries of these GPUs. For a new GPU it waits, but not for long and not
// for a table that fails.
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
