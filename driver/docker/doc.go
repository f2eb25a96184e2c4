// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package docker speaks to one Docker daemon on behalf of the task driver.
//
// It is the only importer of the Docker Engine client. It knows nothing of Nomad, GPUs or claims: it takes the data
// structures of the Engine API and plain Go types, and returns outcomes that a caller can rely on, whatever the daemon
// does in between (restarts, timeouts, half-finished calls).
//
// Where to look:
//
//	client.go   Config, New: one client, API version negotiated, no client-wide timeout
//	errors.go   the sentinels, and how an answer of the daemon becomes one of them
//	info.go     what the daemon is: version, runtimes, bridge address
//	image.go    EnsureImage: when is an image used, loaded or pulled
//	pull.go     one pull per image at a time, with idle timeout and errors out of the stream; progress.go sums it up
//	auth.go     where registry credentials come from
//	create.go   Create: name conflicts, adoption, retries
//	start.go    Start
//	wait.go     Wait: a lost connection is not an exit
//	stop.go     Stop, Signal, Remove
//	inspect.go  Inspect, List
//	update.go   SetCPUs
//	logs.go     Logs: exactly once, resumable; frames.go splits the stream
//	exec.go     Exec, ExecStream
//	stats.go    Stats
//	timing.go   retries, polls and how long they may take
//	sandbox.go  the pause container that holds the network namespace of a task group
//
// Every method takes a context and ends with it. A Client is safe for concurrent use.
package docker
