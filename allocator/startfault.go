// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// StartFaults counts consecutive starts that failed because the NVIDIA driver or container
// toolkit could not give the GPU to a container. NVML reads such a GPU without
// error, so Nomad would place task after task there.
type StartFaults struct {
	Count  int       `json:"count"`
	Last   time.Time `json:"last"`
	Reason string    `json:"reason"`
}

const (
	// faultsInARow is how many starts must fail: one may fail during an upgrade.
	faultsInARow = 3
	// firstRest is for how long the GPU is then not offered. It doubles with each further
	// failure, up to longestRest.
	firstRest   = 5 * time.Minute
	longestRest = time.Hour
	// faultsForgotten is the time without a start after which failures no longer count.
	faultsForgotten = 2 * longestRest
	// longestReason bounds the reason, in bytes: it must fit into the ledger.
	longestReason = 240
)

// StartFailed records on each of these GPUs that a start failed because the node was not
// ready. The next container that runs on a GPU resets its count.
func (t *Table) StartFailed(ctx context.Context, gpus []GPUID, reason string) error {
	now := t.now()
	return t.changeEach(ctx, gpus, func(_ GPUID, l *Ledger) (bool, error) {
		l.startFailed(reason, now)
		return true, nil
	})
}

func (l *Ledger) startFailed(reason string, now time.Time) {
	faults := StartFaults{Count: 1, Last: now, Reason: cutReason(reason)}
	if old := l.StartFaults; old != nil && old.isCurrent(now) {
		faults.Count = old.Count + 1
	}
	l.StartFaults = &faults
}

// cutReason bounds the size of a reason in JSON.
func cutReason(reason string) string {
	reason = strings.ToValidUTF8(reason, string(utf8.RuneError))
	room := longestReason
	for at, r := range reason {
		if room -= jsonRuneLen(r); room < 0 {
			return reason[:at] + "…"
		}
	}
	return reason
}

// isCurrent reports whether the failures still count. Those in the future, by a wrong clock,
// do not.
func (f StartFaults) isCurrent(now time.Time) bool {
	return now.Sub(f.Last) <= faultsForgotten && !f.Last.After(now.Add(ClockSkew))
}

// Rest returns why the GPU should not be offered now, "" if it should.
func (f *StartFaults) Rest(now time.Time) string {
	if f == nil || f.Count < faultsInARow || !f.isCurrent(now) {
		return ""
	}
	rest := longestRest
	if doublings := f.Count - faultsInARow; doublings < 4 {
		rest = min(firstRest<<doublings, longestRest)
	}
	again := f.Last.Add(rest)
	if !now.Before(again) {
		return ""
	}
	return fmt.Sprintf("the last %d starts of tasks failed, since the node was not ready: %s; offered again at %s",
		f.Count, f.Reason, again.UTC().Format(time.RFC3339))
}
