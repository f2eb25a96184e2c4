// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package e2e tests the whole with real parts: Nomad, Consul, Docker and
// NVIDIA's container runtime, on a simulated NVML.
//
// TestMain starts one cluster with two GPUs of different size for all tests;
// cluster_test.go drives it through the scripts of the development cluster.
// job_test.go builds and follows jobs, table_test.go reads claims,
// asdocker_test.go makes the agent load the driver under the name docker, shapes_test.go
// runs the jobs of testdata/jobs, which have the forms of real jobs, and
// planner_test.go has its own cluster of three nodes. Every other file tests
// one promise to operators and job authors: what they see, that slices are shared
// and isolated, that nothing is lost when a part fails, and that invalid input leads
// to a clear error.
//
// The tests carry the build tag e2e and need root; `make test-e2e` does the
// set-up. The bench_*.go files, with the additional tag bench, compare the driver
// with Nomad's built-in one: `make bench-driver`.
package e2e
