// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"time"
)

const (
	// maxProbation bounds how long a recovered GPU has to wait.
	maxProbation = time.Hour
	// forgiveAfter is how long a GPU has to be in use without a failure for
	// those before to be forgotten.
	forgiveAfter = time.Hour
)

// record is a GPU's history of failures. After a single failure a GPU is used again as soon as
// it is readable. Each failure soon after doubles the probation, so that an intermittent fault
// does not kill a task each time.
type record struct {
	failures  int       // not yet forgotten
	fault     string    // the current one, empty if there is none
	weight    int       // with which that one was counted
	wellSince time.Time // zero while it is not well
}

// failed records a failure. All failures until the GPU is used again count as one, of the
// greatest weight.
func (r record) failed(fault string, weight int) record {
	r.failures += max(weight-r.weight, 0)
	r.weight = max(weight, r.weight)
	r.fault, r.wellSince = fault, time.Time{}
	return r
}

// Weights of failures. An Xid counts as a repeated failure: the driver has already judged it.
const (
	unreadable = 1
	reported   = 2
)

// well records that the GPU was readable.
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

// reason returns why a readable GPU is not used yet, "" if it is.
func (r record) reason(probation time.Duration) string {
	if r.fault == "" {
		return ""
	}
	return fmt.Sprintf("%s; on probation: it must be healthy for %s", r.fault, r.wait(probation))
}
