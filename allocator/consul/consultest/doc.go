// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package consultest starts real Consul servers for tests: one, or a cluster of three with
// traffic that a test can cut. The environment variable CONSUL names the binary;
// `make test-table` sets it.
//
// Start reading at Start and StartThree.
package consultest
