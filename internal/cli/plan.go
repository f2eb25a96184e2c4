// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/words"
)

const planLong = `Show on which nodes and GPUs a job's tasks would be placed and why, and which would
fit nowhere and by how much. Nothing is submitted or reserved.

The job file is HCL, which Nomad parses, or JSON. A job that asks for no GPU memory
is left unchanged.`

const planExample = `  nomad-gpu-mem plan job.nomad.hcl
  nomad-gpu-mem plan --policy spread --var model=llama job.nomad.hcl`

func (a App) newPlan(table *tableFlags) *cobra.Command {
	on := newJobCommand(a, table)
	cmd := &cobra.Command{
		Use:     "plan JOB",
		Short:   "Show where a job's tasks would go",
		Long:    planLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + planExit,
		Example: planExample,
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := on.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			plan, err := p.Plan(cmd.Context(), p.job.Document, p.options)
			if err != nil {
				return on.flags.explain(err)
			}
			if on.asJSON {
				err = writeJSON(cmd.OutOrStdout(), plan)
			} else {
				err = writePlan(cmd.OutOrStdout(), plan)
			}
			return errors.Join(err, unplaced(plan))
		},
	}
	on.register(cmd.Flags())
	return cmd
}

// unplaced is the error of a plan in which some instances fit nowhere.
func unplaced(plan *planner.Plan) error {
	if missing := plan.Missing(); missing > 0 {
		return &waitingError{what: words.Count(missing, "instance") + " of " + plan.ID + " fit nowhere now"}
	}
	return nil
}
