// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"nomad-gpu-mem/allocator"
)

// Kind is what an operation does.
type Kind string

const (
	opClaim   Kind = "claim"
	opRun     Kind = "run"
	opRelease Kind = "release"
	opReserve Kind = "reserve" // for the task, by a planner
	opCancel  Kind = "cancel"  // the reservation
	opRead    Kind = "read"    // the whole table
)

// Operation is one call on the table. Tasks and GPUs are numbers in a small
// world, so that operations meet often.
type Operation struct {
	Kind      Kind           `json:"kind"`
	Task      int            `json:"task,omitempty"`
	Attempt   int            `json:"attempt,omitempty"`
	Container int            `json:"container,omitempty"`
	Units     [gpuCount]mask `json:"units,omitzero"` // that a claim books
	Count     [gpuCount]int  `json:"count,omitzero"` // that a reservation wants
	GPUs      [gpuCount]bool `json:"gpus,omitzero"`  // that are run on, released or cancelled
}

// mask is a set of units, a bit each.
type mask uint16

// Outcome is what a call returned.
type Outcome struct {
	Result Result `json:"result"`
	State  State  `json:"state,omitzero"` // that was read
}

// Result is how an operation ended.
type Result string

const (
	done    Result = "done"
	held    Result = "held"    // by another task: allocator.ErrHeld
	refused Result = "refused" // no such claim: allocator.ErrInvalid
	noRoom  Result = "no room" // allocator.ErrNoRoom
	// superseded: a newer attempt of the task has the claim, allocator.ErrSuperseded.
	superseded Result = "superseded"

	// unknown is the result of a call that lost its answer or its process: it may
	// have taken effect or not.
	unknown Result = "unknown"
	// outdated is a result that was decided after a stale read, with nothing
	// written: it proves nothing, and must have had no effect.
	outdated Result = "outdated"
)

// generate returns a random operation. All tests of the table draw from it.
func generate(random *rand.Rand) Operation {
	op := Operation{Task: 1 + random.IntN(taskCount), Attempt: 1 + random.IntN(attemptCount)}
	switch pick := random.IntN(100); {
	case pick < 40:
		op.Kind = opClaim
		for gpu := range op.someGPUs(random) {
			for range 1 + random.IntN(3) {
				op.Units[gpu] |= 1 << random.IntN(unitCount)
			}
		}
	case pick < 50:
		op.Kind, op.Container = opRun, 1+random.IntN(2)
		for gpu := range op.someGPUs(random) {
			op.GPUs[gpu] = true
		}
	case pick < 75:
		op.Kind = opRelease
		for gpu := range gpuCount {
			op.GPUs[gpu] = random.IntN(4) > 0
		}
	case pick < 87:
		op.Kind = opReserve
		for gpu := range op.someGPUs(random) {
			op.Count[gpu] = 1 + random.IntN(4)
		}
	case pick < 92:
		op.Kind, op.GPUs = opCancel, [gpuCount]bool{true, true, true}
	default:
		return Operation{Kind: opRead}
	}
	return op
}

// someGPUs yields one GPU, or some.
func (op *Operation) someGPUs(random *rand.Rand) func(yield func(int) bool) {
	order := random.Perm(gpuCount)[:1+random.IntN(gpuCount)]
	return func(yield func(int) bool) {
		for _, gpu := range order {
			if !yield(gpu) {
				return
			}
		}
	}
}

// perform makes the call. An error that no operation may end with is returned.
func (op Operation) perform(ctx context.Context, table *allocator.Table) (Outcome, error) {
	if op.Kind == opRead {
		snapshot, err := table.Snapshot(ctx)
		if err != nil {
			return outcomeOf(err)
		}
		state, err := stateOf(snapshot)
		return Outcome{Result: done, State: state}, err
	}
	return outcomeOf(op.change(ctx, table))
}

func (op Operation) change(ctx context.Context, table *allocator.Table) error {
	attempt := fmt.Sprintf("attempt-%d", op.Attempt)
	switch op.Kind {
	case opClaim:
		return table.Claim(ctx, owner(op.Task), allocator.Attempt{ID: attempt, Begun: begun(op.Attempt)}, op.bookings())
	case opRun:
		return table.Running(ctx, owner(op.Task), attempt, fmt.Sprintf("container-%d", op.Container), op.gpus())
	case opRelease:
		return table.Release(ctx, owner(op.Task), attempt, op.gpus())
	case opReserve:
		return table.Reserve(ctx, planned(op.Task), time.Hour, op.requests())
	case opCancel:
		return table.Release(ctx, planned(op.Task), planned(op.Task).Alloc, op.gpus())
	default:
		return fmt.Errorf("unknown operation %q", op.Kind)
	}
}

// isPerGPU reports whether the table does the operation on each GPU by itself. A
// claim and a reservation are for all GPUs or none.
func (op Operation) isPerGPU() bool { return op.GPUs != [gpuCount]bool{} }

// steps are the operations that each take effect at one moment: one for each GPU of
// an operation that the table does on each by itself.
func (op Operation) steps() (all []Operation) {
	if !op.isPerGPU() {
		return []Operation{op}
	}
	for number, named := range op.GPUs {
		if named {
			step := op
			step.GPUs = [gpuCount]bool{}
			step.GPUs[number] = true
			all = append(all, step)
		}
	}
	return all
}

func outcomeOf(err error) (Outcome, error) {
	if errors.Is(err, allocator.ErrUnavailable) { // on one GPU, whatever came of the others
		return Outcome{Result: unknown}, nil
	}
	for sentinel, result := range map[error]Result{
		allocator.ErrHeld: held, allocator.ErrInvalid: refused, allocator.ErrNoRoom: noRoom, allocator.ErrSuperseded: superseded,
	} {
		if errors.Is(err, sentinel) {
			return Outcome{Result: result}, nil
		}
	}
	return Outcome{Result: done}, err
}

func (op Operation) bookings() (all []allocator.Booking) {
	for number, units := range op.Units {
		if units != 0 {
			all = append(all, booking(gpu(number), units.set()))
		}
	}
	return all
}

func (op Operation) requests() (all []allocator.UnitRequest) {
	for number, count := range op.Count {
		if count > 0 {
			all = append(all, allocator.UnitRequest{GPU: gpu(number), UnitMiB: unitMiB, TotalUnits: unitCount, Count: count})
		}
	}
	return all
}

func (op Operation) gpus() (all []allocator.GPUID) {
	for number, named := range op.GPUs {
		if named {
			all = append(all, gpu(number))
		}
	}
	return all
}

func (m mask) set() (units allocator.UnitSet) {
	for unit := range unitCount {
		if m&(1<<unit) != 0 {
			units = append(units, unit)
		}
	}
	return units
}
