// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package model has the invariants of a cluster under random jobs and faults. It does not
// depend on Nomad, Docker or Consul: it gets observations and returns violations, so it is
// tested without a cluster.
//
// timeline.go records which containers ran when, and finds two that ran on one unit;
// look.go compares running containers with claims; bookings.go compares both with Nomad's
// bookings; remains.go and process.go compare the quiet cluster at the end with the quiet
// cluster at the beginning; churn.go chooses the next operation on jobs; report.go sums up.
package model
