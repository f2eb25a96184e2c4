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
	"nomad-gpu-mem/internal/pause"
	"nomad-gpu-mem/internal/status"
)

// retryPause is how long --watch waits before it retries an unavailable table.
const retryPause = 2 * time.Second

const statusLong = `Show every GPU with its slices: which task holds which units of its memory.

A GPU's bar has a letter for each task, oldest first, "." for free units and "!"
for unavailable units, such as all free ones of a dead node; the line under it
shows the memory in use, to the same scale. SINCE is how long the claim has been in
its state: "claimed" before its container is created, then "running". --json lists
the units of each task.`

// statusCommand is one call of `status`.
type statusCommand struct {
	app   App
	table *tableFlags
	only  status.Filter
	json  bool
	watch bool
	width int
	out   io.Writer
	err   io.Writer
}

func (a App) newStatus(table *tableFlags) *cobra.Command {
	s := &statusCommand{app: a, table: table}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show who holds which part of which GPU's memory",
		Long:  statusLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.out, s.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return s.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.only.GPU, "gpu", "", "only the GPU with this `UUID`, or the start of one")
	flags.StringVar((*string)(&s.only.Node), "node", "", "only the node with this `name`")
	flags.BoolVar(&s.json, "json", false, "print JSON (docs/cli.md); with --watch one line for each change")
	flags.BoolVarP(&s.watch, "watch", "w", false, "keep running and show every change, until interrupted")
	flags.IntVar(&s.width, "width", 0, "width of the text in `columns`; by default the terminal's, or 80")
	return cmd
}

func (s *statusCommand) run(ctx context.Context) error {
	if s.width < 0 {
		return usageError{fmt.Errorf("--width must not be negative, got %d", s.width)}
	}
	table, err := s.app.open(s.table)
	if err != nil {
		return err
	}
	defer table.Close()
	return s.show(ctx, table)
}

func (s *statusCommand) show(ctx context.Context, table *allocator.Table) error {
	snapshot, err := table.Snapshot(ctx)
	if err != nil {
		return s.table.explain(err)
	}
	report := s.report(snapshot)
	if err := s.noneMatch(report); err != nil {
		return err
	}
	if s.watch {
		return s.follow(ctx, table, snapshot)
	}
	return errors.Join(s.write(report), unreadable(report))
}

// follow shows the snapshot and every later one until ctx ends. It retries while the table
// is unavailable.
func (s *statusCommand) follow(ctx context.Context, table *allocator.Table, snapshot *allocator.Snapshot) error {
	for {
		if err := s.write(s.report(snapshot)); err != nil {
			return err
		}
		next, err := s.next(ctx, table, snapshot.Version)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return s.table.explain(err)
		}
		snapshot = next
	}
}

// next waits for a snapshot of another version.
func (s *statusCommand) next(ctx context.Context, table *allocator.Table, after uint64) (*allocator.Snapshot, error) {
	for {
		snapshot, err := table.Watch(ctx, after)
		switch {
		case err == nil && snapshot.Version != after:
			return snapshot, nil
		case err == nil:
			continue
		case !errors.Is(err, allocator.ErrUnavailable):
			return nil, err
		}
		fmt.Fprintln(s.err, s.table.explain(err))
		if err := pause.For(ctx, retryPause); err != nil {
			return nil, err
		}
	}
}

func (s *statusCommand) report(snapshot *allocator.Snapshot) status.Report {
	report := status.Of(snapshot, s.only, s.app.Now().UTC())
	report.Table = s.table.describe()
	return report
}

func (s *statusCommand) write(report status.Report) error {
	return status.Write(s.out, report, status.Options{JSON: s.json, Watch: s.watch, Width: s.width})
}

// noneMatch returns an error if the filter matches no GPU.
func (s *statusCommand) noneMatch(report status.Report) error {
	if s.only == (status.Filter{}) || len(report.Nodes) > 0 {
		return nil
	}
	return fmt.Errorf("no GPU in the allocation table (%s) matches --node=%q --gpu=%q; "+
		"without these flags status shows all", report.Table, s.only.Node, s.only.GPU)
}

func unreadable(report status.Report) error {
	if len(report.Problems) == 0 {
		return nil
	}
	return &unreadableError{values: len(report.Problems)}
}
