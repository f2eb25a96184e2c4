// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
)

const releaseLong = `Release units that "claim" holds, or a reservation, by its ID: the first line that
"claim" prints, shown under ALLOC in "status".

The claim of a Nomad task cannot be released this way: it ends with the task. If it
outlives its task, use "doctor".`

func (a App) newRelease(table *tableFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "release ID",
		Short: "Release what claim holds",
		Long:  releaseLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("%s takes one ID, got %q", cmd.CommandPath(), args)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t, snapshot, err := a.openToChange(cmd.Context(), table)
			if err != nil {
				return err
			}
			defer t.Close()
			return release(cmd.Context(), table, t, snapshot, args[0])
		},
	}
}

func release(ctx context.Context, flags *tableFlags, table *allocator.Table, snapshot *allocator.Snapshot, id string) error {
	id, err := fullID(snapshot, id)
	if err != nil {
		return err
	}
	found, failed := false, error(nil)
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			if claim.Alloc != id {
				continue
			}
			if claim.State == allocator.Claimed || claim.State == allocator.Running {
				return fmt.Errorf("%s belongs to a Nomad task: its claim ends with the task; if it outlives the task, run `nomad-gpu-mem doctor`", id)
			}
			found = true
			failed = errors.Join(failed, table.Release(ctx, claim.Owner, claim.Attempt, []allocator.GPUID{gpu.ID}))
		}
	}
	if !found {
		return fmt.Errorf("no claim has the ID %s; `nomad-gpu-mem status` lists all claims", id)
	}
	if failed != nil {
		return flags.explainChange(failed)
	}
	return nil
}

// fullID completes the start of an ID, as status shows it, if it is unambiguous.
func fullID(snapshot *allocator.Snapshot, start string) (string, error) {
	ids := map[string]bool{}
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			if start != "" && strings.HasPrefix(claim.Alloc, start) {
				ids[claim.Alloc] = true
			}
		}
	}
	switch {
	case ids[start] || len(ids) == 0:
		return start, nil
	case len(ids) > 1:
		return "", fmt.Errorf("%s is the start of several IDs: %s", start, strings.Join(slices.Sorted(maps.Keys(ids)), ", "))
	}
	return slices.Collect(maps.Keys(ids))[0], nil
}
