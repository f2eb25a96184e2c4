// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package cli is the command line for operators. It shows from the allocation table
// which task holds which GPU memory, repairs the table, and plans jobs.
//
// The files of a command begin with its name. Where to look:
//
//   - app.go: App, the root command and the exit codes
//   - status.go: `status`, once or following changes; the package status renders it
//   - cordon.go: `cordon` and `uncordon`
//   - doctor.go: `doctor`; the package doctor has its rules
//   - claim.go: `claim`, with claim_hold.go for a command that runs on the slice;
//     claimable.go: whether a GPU can be claimed; holder.go: the holder's name in a claim
//   - release.go: `release`
//   - profile.go, profile_formula.go: `profile`
//   - plan.go, plan_text.go: `plan`; run.go, run_text.go: `run`; replan.go: `replan`
//   - plan_flags.go, plan_jobfile.go: what the commands that plan share: Nomad with the
//     table, and the job's file
//   - webhook.go: `webhook`
//   - simulate.go, simulate_options.go: `simulate`
//   - version.go: `version`
//
// Shared by several commands:
//
//   - table_flags.go: where the table is, from flags and environment
//   - table_open.go: opens the table, to read it or to change it
//   - table_explain.go: what an operator can do about an error of the table
//   - nomad.go: where Nomad is, and what doctor reads from it
//   - size.go, policy.go: sizes and placement policies in flags; json.go: JSON output
//
// main constructs App and passes it the function that opens a table.
package cli
