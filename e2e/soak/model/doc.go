// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package model says what must hold while a cluster is soaked in random jobs and
// faults. It knows nothing of Nomad, Docker or Consul: it is given what was seen and
// answers with what was wrong, so that it is tested without a cluster.
//
// timeline.go knows which containers ran when, and finds two that ran on one unit;
// look.go compares running containers with claims; bookings.go compares both with what
// Nomad booked; remains.go and process.go compare the quiet cluster at the end with the
// quiet cluster at the beginning; churn.go chooses the next operation on jobs; report.go
// adds all of it up.
package model
