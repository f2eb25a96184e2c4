// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"time"
)

const (
	// maxProbation bounds how long a GPU that is well again has to wait.
	maxProbation = time.Hour
	// forgiveAfter is how long a GPU has to be in use without a failure for
	// those before to be forgotten.
	forgiveAfter = time.Hour
)

// record is a GPU's past, as far as it says how much to trust it. A GPU that
// fails for once is used again as soon as it can be read; each failure soon
// after doubles the time for which it must be well before, so that one that
// comes and goes does not take a task with it each time.
type record struct {
	failures  int       // not yet forgotten
	fault     string    // the one that has not been got over, or empty
	weight    int       // with which that one was counted
	wellSince time.Time // zero while it is not well
}

// failed notes a failure. All that happens until the GPU is used again is one
// failure, of the greatest weight.
func (r record) failed(fault string, weight int) record {
	r.failures += max(weight-r.weight, 0)
	r.weight = max(weight, r.weight)
	r.fault, r.wellSince = fault, time.Time{}
	return r
}

// Weights of failures. An Xid counts as a failure that has come again: the
// driver has judged already.
const (
	unreadable = 1
	reported   = 2
)

// well notes that the GPU could be read.
func (r record) well(now time.Time, probation time.Duration) record {
	if r.wellSince.IsZero() {
		r.wellSince = now
	}
	switch wellFor := now.Sub(r.wellSince); {
	case r.fault != "" && wellFor >= r.wait(probation):
		r.fault, r.weight = "", 0
	case r.fault == "" && wellFor >= forgiveAfter:
		r.failures = 0
	}
	return r
}

// wait is how long the GPU must be well to be used again.
func (r record) wait(probation time.Duration) time.Duration {
	wait := probation
	switch {
	case r.failures < 2:
		return 0
	case r.failures > 20: // no shift beyond maxProbation overflows
		return maxProbation
	default:
		wait <<= r.failures - 2
	}
	return min(wait, max(probation, maxProbation))
}

// reason says why a GPU that can be read is not used yet, or is empty.
func (r record) reason(probation time.Duration) string {
	if r.fault == "" {
		return ""
	}
	return fmt.Sprintf("%s; on probation: it must be well for %s", r.fault, r.wait(probation))
}
