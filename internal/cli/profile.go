// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/profile"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/words"
)

const profileLong = `A profile states how much GPU memory a kind of task needs: a base, and an amount for
each unit of some attributes. A job names a profile and the attributes in its meta
block, and "plan", "run" and "webhook" turn them into units:

  meta {
    gpu_mem_profile = "resnet50"
    gpu_mem_batch   = "8"
  }

Profiles are in the allocation table. Changing one does not affect running jobs.`

const profileSetExample = `  # 1500 MiB and 120.5 MiB for each image of a batch, 24 GiB at most
  nomad-gpu-mem profile set resnet50 --base 1500MiB --per batch=120.5MiB --max 24GiB`

func (a App) newProfile(table *tableFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Define how much GPU memory kinds of tasks need",
		Long:  profileLong + "\n\n" + tableHelp + "\n\n" + exitHelp,
		Args:  noCommandArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newProfileSet(table), a.newProfileShow(table), a.newProfileList(table),
		a.newProfileDelete(table), a.newProfileTest(table))
	return cmd
}

func (a App) newProfileSet(table *tableFlags) *cobra.Command {
	var base, least, most, about string
	var per []string
	cmd := &cobra.Command{
		Use:     "set NAME",
		Short:   "Create or replace a profile",
		Long:    "Create or replace a profile. Amounts are sizes such as 1.5GiB; a bare number is MiB.",
		Example: profileSetExample,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := parseProfile(base, per, least, most)
			if err != nil {
				return usageError{err}
			}
			p.About = about
			if err := errors.Join(planner.Formula(p).Validate(), planner.CheckAttributes(p)); err != nil {
				return usageError{err}
			}
			t, err := a.open(table)
			if err != nil {
				return err
			}
			defer t.Close()
			if err := t.PutProfile(cmd.Context(), args[0], p); err != nil {
				return table.explainChange(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], formulaText(p))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&base, "base", "0", "what every task needs, a `size`")
	flags.StringArrayVar(&per, "per", nil, "what each unit of an attribute adds, as `attribute=size`; repeat it for more")
	flags.StringVar(&least, "min", "0", "no task gets less than this `size`")
	flags.StringVar(&most, "max", "0", "a task that needs more than this `size` is rejected; 0 means no limit")
	flags.StringVar(&about, "about", "", "a description in a few `words`")
	return cmd
}

func (a App) newProfileShow(table *tableFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a profile",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.readProfile(cmd.Context(), table, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), p)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], formulaText(p))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, as the table has it (docs/consul-kv.md)")
	return cmd
}

func (a App) newProfileList(table *tableFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all profiles",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.open(table)
			if err != nil {
				return err
			}
			defer t.Close()
			profiles, problems, err := t.Profiles(cmd.Context())
			if err != nil {
				return table.explain(err)
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), profiles)
			} else {
				err = writeProfiles(cmd.OutOrStdout(), profiles)
			}
			if err != nil || len(problems) == 0 {
				return err
			}
			for _, problem := range problems {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", problem.Key, words.Printable(problem.Err.Error()))
			}
			return &unreadableError{values: len(problems)}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: an object of all profiles, by name")
	return cmd
}

func (a App) newProfileDelete(table *tableFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a profile",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.open(table)
			if err != nil {
				return err
			}
			defer t.Close()
			return explainProfile(t.DeleteProfile(cmd.Context(), args[0]), table.explainChange)
		},
	}
}

func (a App) newProfileTest(table *tableFlags) *cobra.Command {
	var unit string
	cmd := &cobra.Command{
		Use:     "test NAME [ATTRIBUTE=VALUE...]",
		Short:   "Show how much memory a task would get",
		Example: "  nomad-gpu-mem profile test resnet50 batch=8",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return oneName(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			unitMiB, err := parseBound(unit)
			if err == nil && unitMiB == 0 {
				err = fmt.Errorf("invalid size %q, want at least 1MiB", unit)
			}
			if err != nil {
				return usageError{fmt.Errorf("--unit: %w", err)}
			}
			attributes, err := parsePairs(args[1:])
			if err != nil {
				return usageError{err}
			}
			p, err := a.readProfile(cmd.Context(), table, args[0])
			if err != nil {
				return err
			}
			mib, err := planner.Formula(p).Need(attributes)
			if err != nil {
				return err
			}
			need := profile.Units(mib, unitMiB)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d MiB: %s of %d MiB\n", mib, words.Count(need, "unit"), unitMiB)
			return err
		},
	}
	cmd.Flags().StringVar(&unit, "unit", "1GiB", "`size` of a unit (memory_unit of the device plugin)")
	return cmd
}

// explainProfile explains the error of a call that names a profile.
func explainProfile(err error, explain func(error) error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, allocator.ErrNoProfile):
		return fmt.Errorf("%w; `nomad-gpu-mem profile list` lists all", err)
	default:
		return explain(err)
	}
}

// readProfile reads one profile from the table that the flags name.
func (a App) readProfile(ctx context.Context, flags *tableFlags, name string) (allocator.Profile, error) {
	t, err := a.open(flags)
	if err != nil {
		return allocator.Profile{}, err
	}
	defer t.Close()
	p, err := t.Profile(ctx, name)
	return p, explainProfile(err, flags.explain)
}

// oneName requires the name of one profile.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s takes the name of one profile, got %q", cmd.CommandPath(), args)}
}
