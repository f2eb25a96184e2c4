// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package e2e tests the whole on real parts: Nomad, Consul, Docker and
// NVIDIA's container runtime, over a simulated NVML.
//
// TestMain starts one cluster with two GPUs of different size for all tests;
// cluster_test.go drives it through the scripts of the development cluster.
// job_test.go builds and follows jobs, table_test.go looks at claims,
// asdocker_test.go has the agent load the driver under the name docker, shapes_test.go
// runs the jobs of testdata/jobs, which have the forms that people's jobs have, and
// planner_test.go has a cluster of its own, of three nodes. Every other file is
// one promise to the people who use this: what they see, that slices are shared
// and kept apart, that nothing is lost when a part dies, and that bad input is
// answered in one sentence.
//
// The tests carry the build tag e2e and need root; `make test-e2e` does the
// set-up. The bench_*.go files, with the tag bench too, measure the driver beside
// Nomad's built-in one: `make bench-driver`.
package e2e
