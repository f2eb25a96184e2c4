// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/doctor"
	"nomad-gpu-mem/internal/tableconfig"
)

// Exit codes of the program.
const (
	ExitOK         = 0
	ExitFailure    = 1 // anything that has no code of its own
	ExitUsage      = 2 // invalid flags, arguments or environment
	ExitTable      = 3 // the table cannot be read: unavailable, permission denied, missing
	ExitUnreadable = 4 // the table was read and shown, but for some of its values
	ExitFindings   = 5 // doctor found something that it did not fix
)

const exitHelp = `Exit codes:
  0  done
  1  failed
  2  invalid flags, arguments or environment
  3  the table cannot be read: unavailable, permission denied, missing
  4  the table was shown, but some of its values cannot be read
  5  doctor: a finding was not fixed
  6  plan, run, replan: some instances wait, or Nomad deviated from the plan`

// App holds what the commands need from outside. Now and Getenv are functions so
// that a test can set the time and the environment.
type App struct {
	OpenTable func(tableconfig.Config) (*allocator.Table, error)
	Getenv    func(string) string
	Now       func() time.Time

	// Local returns this machine's containers, or nil if no engine runs here. A nil
	// Local means that containers are never inspected.
	Local func(context.Context) (*doctor.Local, error)

	// Pace is the interval at which Nomad is polled; 0 means one second.
	Pace time.Duration
}

// Run executes the command that args name (without the program's name) and
// returns the exit code. Errors are written to stderr.
func (a App) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := a.newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var unreadable *unreadableError
	var findings *findingsError
	if !errors.As(err, &unreadable) && !errors.As(err, &findings) { // the output has these already
		fmt.Fprintln(stderr, "Error:", err)
	}
	return exitCode(err)
}

// usageError is a mistake in the command line or its environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// unreadableError reports that the table was shown except for some values.
type unreadableError struct{ values int }

func (e *unreadableError) Error() string {
	return fmt.Sprintf("%d values of the allocation table cannot be read", e.values)
}

func exitCode(err error) int {
	var usage usageError
	var unreadable *unreadableError
	var table *tableError
	var findings *findingsError
	var command *commandError
	var waiting *waitingError
	switch {
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &unreadable):
		return ExitUnreadable
	case errors.As(err, &table):
		return ExitTable
	case errors.As(err, &command):
		return command.code
	case errors.As(err, &findings):
		return ExitFindings
	case errors.As(err, &waiting):
		return ExitWaiting
	default:
		return ExitFailure
	}
}

const rootLong = `Several Nomad tasks share one GPU, each with its own slice of the GPU's memory.
This command shows which task holds which slice, and what is left.

It reads the allocation table that the plugins keep: in Consul KV, or in one
node's file. It never queries a GPU, so it runs anywhere. Planning, doctor and
claim also query Nomad.`

const rootExample = `  # who holds what, in the whole cluster
  nomad-gpu-mem status

  # one node, following changes
  nomad-gpu-mem status --node gpu-node-1 --watch

  # a Consul elsewhere, with a token that may read the keys below gpu-mem/
  nomad-gpu-mem status --table-address consul.example:8500 --table-token-file ~/.consul-token

  # free memory, for a script
  nomad-gpu-mem status --json | jq .total.free_mib`

func (a App) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "nomad-gpu-mem",
		Short:         "Show how Nomad tasks share GPU memory",
		Long:          rootLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommandArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nRun '%s --help' for the flags", err, cmd.CommandPath())}
	})
	table := &tableFlags{getenv: a.Getenv}
	table.register(root.PersistentFlags())
	root.AddCommand(a.newStatus(table), a.newCordon(table), a.newUncordon(table), a.newDoctor(table),
		a.newClaim(table), a.newRelease(table), a.newProfile(table), a.newPlan(table), a.newRun(table),
		a.newReplan(table), a.newWebhook(table), a.newSimulate(), newVersion())
	return root
}

// noCommandArgs rejects arguments that name no command.
func noCommandArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q\nRun '%s --help' for the commands", args[0], cmd.CommandPath())
	return usageError{err}
}

// noArgs rejects arguments of a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument, got %q", cmd.CommandPath(), args[0])}
}
