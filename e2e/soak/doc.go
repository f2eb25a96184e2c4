// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package soak runs a cluster of three nodes, each with its own engine, under random jobs
// and random faults, and checks it continuously.
//
// Package model has the invariants, independent of a cluster. Here, machines_test.go,
// cluster_test.go and daemon_test.go make the cluster and end or pause its processes.
// forms_test.go and hostile_test.go are the jobs, and operate_test.go runs the operations that
// the model chooses. Each faults_*_test.go is one family of faults, as a table, and
// faults_test.go injects them. engine_events_test.go and observer_test.go collect the
// observations that the model checks; inventory_test.go and gauges_test.go find leaks.
// soak_test.go is the test, and injected_test.go shows that it can fail.
//
// The tests carry the build tag e2e and need root: `make soak MINUTES=30`.
package soak
