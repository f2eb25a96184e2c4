package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
)

const runLong = `Plan a job, reserve what the plan takes, submit the job with its pins, follow
Nomad's evaluation, and say whether Nomad did as planned. If somebody else was
faster the job is planned again.

Running an unchanged job again restarts nothing: groups that run keep the pins
that they have. The job file is HCL, read by Nomad, or JSON.`

const runExample = `  nomad-gpu-mem run job.nomad.hcl
  nomad-gpu-mem run --pin hard --var replicas=4 job.nomad.hcl`

func (a App) newRun(table *tableFlags) *cobra.Command {
	on := newJobCommand(a, table)
	on.flags.reserves = true
	cmd := &cobra.Command{
		Use:     "run JOB",
		Short:   "Plan a job and submit it",
		Long:    runLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + planExit,
		Example: runExample,
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			return on.job(cmd, args[0], func(ctx context.Context, site *live.Site, job *api.Job, options planner.Options) error {
				report, err := site.Run(ctx, job, options)
				if err != nil {
					return err
				}
				if on.asJSON {
					err = writeJSON(cmd.OutOrStdout(), report)
				} else {
					err = errors.Join(writePlan(cmd.OutOrStdout(), report.Plan), writeReport(cmd.OutOrStdout(), report))
				}
				return errors.Join(err, otherwise(report))
			})
		},
	}
	on.register(cmd.Flags())
	return cmd
}

// otherwise is the error of a job that does not run as planned, or not whole.
func otherwise(report *live.Report) error {
	if !report.AsPlanned() {
		return &waitingError{what: "Nomad did otherwise than planned"}
	}
	if err := unplaced(report.Plan); err != nil {
		return err
	}
	if len(report.Failures) > 0 {
		return &waitingError{what: "Nomad found no place for all of " + report.Plan.ID}
	}
	return nil
}

// writeReport says what Nomad did.
func writeReport(w io.Writer, report *live.Report) error {
	if report.Warnings != "" {
		fmt.Fprintln(w, "Nomad warns:", clean(report.Warnings))
	}
	if report.Evaluation == "" {
		_, err := fmt.Fprintln(w, "Submitted. Nomad starts it later.")
		return err
	}
	fmt.Fprintf(w, "Evaluation %.8s %s, planned %s\n", report.Evaluation, report.Status, times(report.Rounds))
	for _, group := range slices.Sorted(maps.Keys(report.Failures)) {
		fmt.Fprintf(w, "Nomad found no place for group %s: %s\n", clean(group), clean(report.Failures[group]))
	}
	switch {
	case len(report.Outcomes) > 0:
		return writeOutcomes(w, report.Outcomes)
	case len(report.Failures) > 0:
		_, err := fmt.Fprintln(w, "Nothing was started.")
		return err
	default:
		_, err := fmt.Fprintln(w, "Nothing was to be started.")
		return err
	}
}

func writeOutcomes(w io.Writer, outcomes []planner.Outcome) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GROUP\tALLOC\tNODE\tGPU\tAS PLANNED")
	for _, o := range outcomes {
		switch {
		case o.Alloc == "":
			fmt.Fprintf(table, "%s\t-\t-\t-\tnot started\n", clean(o.Group))
		case len(o.GPUs) == 0:
			fmt.Fprintf(table, "%s\t%.8s\t%s\t-\t-\n", clean(o.Group), o.Alloc, clean(o.NodeName))
		}
		for i, gpu := range o.GPUs {
			if i == 0 {
				fmt.Fprintf(table, "%s\t%.8s\t%s\t%s\t%s\n", clean(o.Group), o.Alloc, clean(o.NodeName), clean(gpu), yesNo(o.AsPlanned))
			} else {
				fmt.Fprintf(table, "\t\t\t%s\t\n", clean(gpu))
			}
		}
	}
	return table.Flush()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times, since others were faster", n)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
