// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package attack runs hostile jobs and checks the host after each.
//
// Job authors are not trusted. Every row of the suite is one thing that such an author
// can write: a config block, an environment, a shell script in the container. The row is
// started on a real Docker engine by the task driver itself, and then the test checks the
// host: a disk, files in place of /etc, another job's container, its GPUs, its claim and its
// image. No row passes because of an error's text or because its start was refused.
//
//   - attack_test.go: what a row is, how it is run, the printed table
//   - scene_test.go, victim_test.go: the host before each row, and what must be unchanged after it
//   - intruder_test.go, alloc_test.go: a hostile task and its allocation
//   - plugin_test.go, engine_test.go, relay_test.go: the driver, Docker, and the driver's
//     requests to Docker
//   - host_test.go, gpu_test.go, look_test.go: checks of files, a disk, processes and GPUs
//   - rows_*_test.go: the rows, by subject
//
// The tests carry the build tag services and need root; `make test-attack` does the set-up.
package attack
