// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// call is one operation of a history, with the times of its beginning and end
// on a clock that all clients share.
type call struct {
	Client  int       `json:"client"`
	Op      Operation `json:"op"`
	Begin   int64     `json:"begin"`
	Outcome Outcome   `json:"outcome"`
	End     int64     `json:"end"`
}

// checkTime bounds the search for an order of a history.
const checkTime = 2 * time.Minute

// checkHistory fails the test if no order of the calls explains all outcomes: an
// order in which each call takes effect at one moment between its beginning and
// its end.
func checkHistory(t testing.TB, calls []call, injected Injected) {
	t.Helper()
	history := make([]porcupine.Operation, len(calls))
	for i, c := range calls {
		history[i] = porcupine.Operation{ClientId: c.Client, Input: c.Op, Call: c.Begin, Output: c.Outcome, Return: c.End}
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{State{}} },
		Step: func(state, input, output any) []any {
			return successors(state.(State), input.(Operation), output.(Outcome))
		},
	}).ToModel()
	switch porcupine.CheckOperationsTimeout(model, history, checkTime) {
	case porcupine.Ok:
		t.Logf("linearizable: %d operations checked, %d faults injected %+v, 0 violations",
			len(calls), injected.Total(), injected)
	case porcupine.Unknown:
		t.Errorf("no order of a history of %d calls was found in %s: %s", len(calls), checkTime, keep(calls))
	default:
		t.Errorf("a history of %d calls is not linearizable: %s", len(calls), keep(calls))
	}
}

// keep writes a failed history to a file for inspection.
func keep(calls []call) string {
	file, err := os.CreateTemp("", "history-*.json")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if err := json.NewEncoder(file).Encode(calls); err != nil {
		return err.Error()
	}
	return file.Name()
}

// successors are the states that may follow if the operation had that outcome;
// none if it cannot have had it.
func successors(state State, op Operation, outcome Outcome) []any {
	next, result := state.apply(op)
	switch {
	case outcome.Result == outdated:
		return []any{state}
	case outcome.Result == unknown && next == state:
		return []any{state}
	case outcome.Result == unknown:
		return []any{state, next}
	case outcome.Result != result, op.Kind == opRead && outcome.State != state:
		return nil
	}
	return []any{next}
}
