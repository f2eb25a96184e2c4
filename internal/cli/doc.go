// Package cli is the command line for operators: it shows who holds which part
// of which GPU's memory, from what the allocation table says.
//
// Where to look:
//
//   - app.go: App, the commands' common ground, and the exit codes
//   - tableflags.go: where the table is, from flags and environment
//   - explain.go: what a person can do about an error
//   - status.go: the command `status`, once or following changes; the package status
//     has what it shows
//   - cordon.go: the commands that keep new tasks off a GPU, and let them on
//   - profile.go, formula.go: the commands for profiles
//   - simulate.go, contest.go: the command that plays a trace
//   - plan.go, run.go, replan.go, webhook.go: the commands that plan, with
//     planflags.go and jobfile.go for what they share, plantext.go and runtext.go for people
//
// The package is reached from main, which tells it how to open a table.
package cli
