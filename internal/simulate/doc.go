// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package simulate replays a trace of tasks with a scheduler and measures how much of the
// cluster's GPU capacity is in use.
//
// Where to look:
//
//   - trace.go: reading a trace in the format of the public openb trace
//   - scheduler.go: Scheduler, what is measured, and policies as schedulers
//   - inflation.go: a test in which tasks only arrive
//   - departures.go: a test in which tasks come and go
//   - admitted.go: what was admitted, by the size of tasks
//   - sample.go: small clusters drawn from the trace
//   - experiment.go: several schedulers and seeds, concurrently
//   - paired.go: the differences between schedulers, seed by seed
//   - table.go, plot.go, loadplot.go: the results as text, CSV and plots
//   - nomad: Nomad's own scheduler, with and without pins
//
// A seed determines everything random: the order of tasks, the times, and which of equal
// places a policy takes. The same seed gives the same result.
package simulate
