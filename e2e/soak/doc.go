// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package soak runs a cluster of three nodes, each with an engine of its own, under
// random jobs and random faults, and looks at it all the time.
//
// What must hold is in the package model, which knows no cluster. Here, machines_test.go,
// cluster_test.go and daemon_test.go make the cluster and end or pause its processes;
// forms_test.go and hostile_test.go are the jobs, operate_test.go does to them what the
// model chooses; each faults_*_test.go is one family of faults, as a table, and
// faults_test.go strikes them; engine_events_test.go and observer_test.go collect what the
// model judges; inventory_test.go and gauges_test.go look for leaks. soak_test.go is the
// test, and injected_test.go shows that it can fail.
//
// The tests carry the build tag e2e and need root: `make soak MINUTES=30`.
package soak
