// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"fmt"

	"nomad-gpu-mem/allocator"
)

// State is what the table holds, in the simplest form that can be compared: it
// is the model that all stores are measured against, and shares no code with
// the ledger.
type State [gpuCount]Holdings

// Holdings is one GPU.
type Holdings struct {
	Holder [unitCount]int       `json:"holder"` // of each unit: 0, a task, or minus the task that it is reserved for
	Tasks  [taskCount + 1]Claim `json:"tasks"`
}

// Claim is what is known of a task that holds units.
type Claim struct {
	Attempt   int `json:"attempt"`
	Container int `json:"container"` // 0 until it runs
}

// apply does an operation on the state. It returns what the call must have
// returned. One that is for all GPUs or none changed nothing if it failed.
func (s State) apply(op Operation) (next State, result Result) {
	next, result = s, done
	for gpu := range next {
		if failed := next[gpu].apply(op, gpu); failed != done {
			result = failed
		}
		if result != done && !op.isPerGPU() {
			return s, result
		}
	}
	return next, result
}

func (h *Holdings) apply(op Operation, gpu int) Result {
	switch {
	case op.Kind == opClaim && op.Units[gpu] != 0:
		return h.claim(op.Task, op.Attempt, op.Units[gpu])
	case op.Kind == opReserve && op.Count[gpu] > 0:
		return h.reserve(op.Task, op.Count[gpu])
	case op.Kind == opRun && op.GPUs[gpu]:
		if h.Tasks[op.Task].Attempt != op.Attempt {
			return refused
		}
		h.Tasks[op.Task].Container = op.Container
	case op.Kind == opRelease && op.GPUs[gpu] && h.Tasks[op.Task].Attempt == op.Attempt:
		h.free(op.Task)
	case op.Kind == opCancel && op.GPUs[gpu]:
		h.free(-op.Task)
	}
	return done
}

func (h *Holdings) claim(task, attempt int, units mask) Result {
	if h.Tasks[task].Attempt == attempt && h.unitsOf(task) == units {
		return done
	}
	if h.Tasks[task].Attempt > attempt {
		return superseded
	}
	for unit, holder := range h.Holder {
		if units&(1<<unit) != 0 && holder > 0 && holder != task {
			return held
		}
	}
	if h.Tasks[task].Attempt == 0 {
		h.free(-task)
	}
	h.free(task)
	h.Tasks[task] = Claim{Attempt: attempt}
	lost := [taskCount + 1]int{}
	for unit := range h.Holder {
		if units&(1<<unit) != 0 {
			lost[max(0, -h.Holder[unit])]++
			h.Holder[unit] = task
		}
	}
	h.resettle(lost)
	return done
}

// resettle gives the displaced reservations other units, or ends them.
func (h *Holdings) resettle(lost [taskCount + 1]int) {
	for task := 1; task <= taskCount; task++ {
		if lost[task] > 0 && !h.take(-task, lost[task]) {
			h.free(-task)
		}
	}
}

func (h *Holdings) reserve(task, count int) Result {
	if h.unitsOf(-task) == 0 && !h.take(-task, count) {
		return noRoom
	}
	return done
}

// take gives the highest free units to the holder, if there are enough.
func (h *Holdings) take(holder, count int) bool {
	var taken mask
	for unit := unitCount - 1; unit >= 0 && count > 0; unit-- {
		if h.Holder[unit] == 0 {
			taken |= 1 << unit
			count--
		}
	}
	if count > 0 {
		return false
	}
	for _, unit := range taken.set() {
		h.Holder[unit] = holder
	}
	return true
}

func (h *Holdings) unitsOf(holder int) (units mask) {
	for unit, by := range h.Holder {
		if by == holder {
			units |= 1 << unit
		}
	}
	return units
}

func (h *Holdings) free(holder int) {
	for unit, by := range h.Holder {
		if by == holder {
			h.Holder[unit] = 0
		}
	}
	if holder > 0 {
		h.Tasks[holder] = Claim{}
	}
}

// stateOf translates what was read from the table.
func stateOf(snapshot *allocator.Snapshot) (s State, err error) {
	for _, problem := range snapshot.Problems {
		return s, fmt.Errorf("key %s: %w", problem.Key, problem.Err)
	}
	for _, read := range snapshot.GPUs {
		var number int
		if _, err := fmt.Sscanf(string(read.ID), gpuFormat, &number); err != nil {
			return s, fmt.Errorf("GPU %s: %w", read.ID, err)
		}
		for _, claim := range read.Claims() {
			if err := s[number].add(claim); err != nil {
				return s, fmt.Errorf("GPU %s: %w", read.ID, err)
			}
		}
	}
	return s, nil
}

func (h *Holdings) add(claim allocator.Claim) error {
	var task int
	format, sign := taskFormat, 1
	if claim.State == allocator.Reserved {
		format, sign = planFormat, -1
	}
	if _, err := fmt.Sscanf(claim.Alloc, format, &task); err != nil {
		return fmt.Errorf("claim of %s: %w", claim.Owner, err)
	}
	for _, unit := range claim.Units {
		h.Holder[unit] = sign * task
	}
	if sign < 0 {
		return nil
	}
	if running := claim.State == allocator.Running; running != (claim.Container != "") {
		return fmt.Errorf("claim of %s is %s with container %q", claim.Owner, claim.State, claim.Container)
	}
	of := &h.Tasks[task]
	_, err := fmt.Sscanf(claim.Attempt, "attempt-%d", &of.Attempt)
	if err == nil && claim.Container != "" {
		_, err = fmt.Sscanf(claim.Container, "container-%d", &of.Container)
	}
	return err
}
