// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package logpipe writes into the pipes of Nomad's log collector, and keeps them open over restarts of the plugin.
//
//	pipe.go        the writing end of one pipe
//	keeper.go      the plugin's side of the process that holds all pipes open
//	serve.go       that process
//	checkpoint.go  how far each task's output was copied, in <state_dir>/logs
//
// Copying itself is the task driver's: logs.go of package driver.
package logpipe
