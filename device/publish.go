// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/boot"
	"nomad-gpu-mem/internal/tellonce"
	"nomad-gpu-mem/internal/version"
)

const (
	// heartbeat is how often the node reports that it is alive, and restores deleted
	// states.
	heartbeat = 30 * time.Second
	// publishTimeout bounds one attempt to write all that changed.
	publishTimeout = 10 * time.Second
	// maxBackoff bounds the pause after an attempt that failed.
	maxBackoff = time.Minute
)

// publisher writes the states of the node and its GPUs into the allocation table, for
// operators and planners. Nothing waits for it. It is not safe for concurrent use.
type publisher struct {
	logger hclog.Logger
	board  *board[inventory]

	table   *lazyTable
	boot    string    // of the machine
	started time.Time // when publishing began
	written map[allocator.GPUID]allocator.GPUState
	node    allocator.NodeState // as last written
	beat    time.Time           // of the last complete writing
	fault   tellonce.Last       // the last logged fault
}

func newPublisher(logger hclog.Logger, b *board[inventory], table *lazyTable) *publisher {
	return &publisher{logger: logger, board: b, table: table, boot: boot.ID(), started: time.Now().UTC().Truncate(time.Second)}
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	defer p.table.close(p.logger)
	retry := backoff.NewExponentialBackOff()
	retry.MaxInterval = maxBackoff
	for {
		newest, changed := p.board.read()
		wait := heartbeat
		if !newest.readAt.IsZero() {
			contested, err := p.publish(ctx, newest)
			p.report(ctx, errors.Join(contested, err))
			if err == nil { // a contested state must not delay the others
				retry.Reset()
			} else {
				wait, changed = retry.NextBackOff(), nil
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// publish writes the changed states. A failure on one GPU does not stop the others. contested
// is about GPUs that another node reports, and about another machine with this host name.
func (p *publisher) publish(ctx context.Context, i inventory) (contested, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	table, err := p.table.get()
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot read the host name: %w", err)
	}
	due := time.Since(p.beat) >= heartbeat
	if due {
		p.written = map[allocator.GPUID]allocator.GPUState{}
	}
	host := allocator.NodeName(name)
	states := gpuStates(i, host)
	contested, err = p.putGPUs(ctx, table, states)
	node := allocator.NodeState{
		Name: host, Version: version.Version, Driver: i.driver, Address: nodeAddress(), Boot: p.boot, StartedAt: p.started,
		Fault: faultText(i.fault),
		GPUs:  slices.AppendSeq([]allocator.GPUID{}, maps.Keys(states)), // not nil: an empty list is reported too
	}
	slices.Sort(node.GPUs)
	if due || !reflect.DeepEqual(node, p.node) {
		failed := table.PutNode(ctx, node)
		if errors.Is(failed, allocator.ErrSharedName) {
			contested = errors.Join(contested, failed)
		} else {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return contested, err
	}
	p.node = node
	if due {
		p.beat = time.Now()
	}
	return contested, nil
}

func faultText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// putGPUs writes the changed states in a stable order, so that the error is stable too.
func (p *publisher) putGPUs(ctx context.Context, table Table, states map[allocator.GPUID]allocator.GPUState) (contested, err error) {
	for _, id := range slices.Sorted(maps.Keys(states)) {
		state := states[id]
		if last, done := p.written[id]; done && !worthWriting(last, state) {
			continue
		}
		switch failed := table.PutGPU(ctx, id, state); {
		case failed == nil:
			p.written[id] = state
		case errors.Is(failed, allocator.ErrOtherNode):
			contested = errors.Join(contested, failed)
		default:
			err = errors.Join(err, fmt.Errorf("state of GPU %s: %w", id, failed))
		}
	}
	return contested, err
}

// report logs a fault once, and its end.
func (p *publisher) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	switch isNew, isOver := p.fault.NoteError(err); {
	case isOver:
		p.logger.Info("GPU states are written to the allocation table again")
	case isNew:
		p.logger.Warn("cannot write GPU states to the allocation table; retrying", "error", err)
	}
}

// gpuStates returns the inventory in the table's form. A GPU that is not offered has no units,
// and a reason.
func gpuStates(i inventory, node allocator.NodeName) map[allocator.GPUID]allocator.GPUState {
	states := map[allocator.GPUID]allocator.GPUState{}
	for _, g := range i.refused {
		states[g.id()] = gpuState(g, node)
	}
	for _, g := range i.offered {
		states[g.id()] = gpuState(g, node)
	}
	return states
}

func gpuState(g gpu, node allocator.NodeName) allocator.GPUState {
	state := allocator.GPUState{
		Node:        node,
		Model:       g.Name,
		Index:       g.Index,
		ReservedMiB: g.reservedMiB,
		UnitMiB:     g.unitMiB,
		Units:       g.units,
		Health:      g.health,
		Unhealthy:   g.unhealthy(),
	}
	if g.health == "" {
		state.Health, state.UnmanagedMiB = g.whyWithheld(), g.unmanagedMiB
	}
	if g.Memory != nil {
		state.MemoryMiB, state.UsedMiB = g.Memory.TotalMiB, g.Memory.UsedMiB
	}
	return state
}

// worthWriting reports whether a state differs from the last written one in more than a little
// memory use, which changes constantly and is written with the next heartbeat.
func worthWriting(last, now allocator.GPUState) bool {
	if absDiff(last.UsedMiB, now.UsedMiB) < now.UnitMiB {
		last.UsedMiB = now.UsedMiB
	}
	if absDiff(last.UnmanagedMiB, now.UnmanagedMiB) < now.UnitMiB {
		last.UnmanagedMiB = now.UnmanagedMiB
	}
	return !reflect.DeepEqual(last, now)
}

func absDiff(a, b uint64) uint64 { return max(a, b) - min(a, b) }
