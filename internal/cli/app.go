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
	ExitUsage      = 2 // the command line or its environment makes no sense
	ExitTable      = 3 // the table cannot be read: not reachable, denied, missing
	ExitUnreadable = 4 // the table was read and shown, but for some of its values
	ExitFindings   = 5 // something is wrong and was not mended
)

const exitHelp = `Exit codes:
  0  done
  1  failed
  2  wrong use: flags, arguments or environment
  3  the table cannot be read: not reachable, permission denied, missing
  4  the table was shown, but some of its values cannot be read
  5  doctor: something is wrong, and was not mended
  6  plan, run, replan: some instances wait, or Nomad did otherwise than planned`

// App is what the commands need from outside. Now and Getenv are functions so
// that a test can say what time it is and what the environment holds.
type App struct {
	OpenTable func(tableconfig.Config) (*allocator.Table, error)
	Getenv    func(string) string
	Now       func() time.Time

	// Local returns this machine's containers, or nil if it has no engine. It
	// is nil itself where containers are never looked at.
	Local func(context.Context) (*doctor.Local, error)

	// Pace is the time between two looks at Nomad; a second if it is 0.
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
	if !errors.As(err, &unreadable) && !errors.As(err, &findings) { // what those say is in the output already
		fmt.Fprintln(stderr, "Error:", err)
	}
	return exitCode(err)
}

// usageError is a mistake of whoever typed the command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// unreadableError says that the table was shown, but for some values.
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
node's file, and never asks a GPU, so it runs anywhere. Planning, doctor and
claim also ask Nomad.`

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

// noCommandArgs refuses what is left of the command line when no command was
// found in it.
func noCommandArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q\nRun '%s --help' for the commands", args[0], cmd.CommandPath())
	return usageError{err}
}

// noArgs refuses arguments of a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument, have %q", cmd.CommandPath(), args[0])}
}
