// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package simulate plays a trace of tasks against a scheduler and measures how
// much of the cluster's GPU capacity ends up in use.
//
// Where to look:
//
//   - trace.go: reading a trace in the format of the public openb trace
//   - scheduler.go: Scheduler, what is measured, and policies as schedulers
//   - inflation.go: a test in which tasks only come
//   - departures.go: a test in which they come and go
//   - admitted.go: what was admitted, by the size of tasks
//   - sample.go: small clusters drawn from the trace
//   - experiment.go: several schedulers, several seeds, at once
//   - paired.go: the differences between schedulers, seed by seed
//   - table.go, plot.go, loadplot.go: the results for people and for programs
//   - nomad: Nomad's own scheduler, with and without steering
//
// A seed decides all that is random: the order of tasks, the times, and which
// of equal places a policy takes. The same seed gives the same result.
package simulate
