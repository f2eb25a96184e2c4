package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
)

const replanLong = `Look at the jobs that "run" or the webhook has planned, and plan anew where an
instance waits for a place or where few nodes of a shortlist are left: nodes come,
go and drain while jobs run. Run it from time to time, as a periodic job or by cron.

Tasks that run are not restarted: of their groups only the list of nodes changes,
and the nodes they are on stay on it. All jobs are looked at unless some are named.
System, periodic and parameterized jobs are bound to no node and passed over.`

func (a App) newReplan(table *tableFlags) *cobra.Command {
	flags := newPlannerFlags(table)
	var asJSON, dryRun bool
	var threshold int
	var namespace string
	cmd := &cobra.Command{
		Use:   "replan [JOB...]",
		Short: "Refresh the pins of jobs that wait",
		Long:  replanLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + planExit,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := flags.options()
			if err != nil {
				return err
			}
			return a.withSite(flags, func(_ *api.Client, site *live.Site) error {
				all, err := site.Replan(cmd.Context(), namespace, args, options, threshold, dryRun)
				if err != nil {
					return err
				}
				if asJSON {
					return errors.Join(writeJSON(cmd.OutOrStdout(), all), replanErrors(all))
				}
				writeReplanned(cmd.OutOrStdout(), all, dryRun)
				return replanErrors(all)
			})
		},
	}
	flags.register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON (docs/planner.md)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().IntVar(&threshold, "threshold", planner.DefaultThreshold, "usable `nodes` below which a shortlist is made anew")
	cmd.Flags().StringVar(&namespace, "namespace", api.AllNamespacesNamespace, "Nomad's `namespace`; * is all")
	return cmd
}

func writeReplanned(w io.Writer, all []live.Replanned, dryRun bool) {
	for _, one := range all {
		name := clean(one.Namespace + "/" + one.Job)
		switch {
		case one.Error != "" && one.Report != nil && one.Report.Evaluation != "":
			fmt.Fprintf(w, "%s: was submitted with new pins: %s\n", name, clean(one.Error))
			continue
		case one.Error != "":
			fmt.Fprintf(w, "%s: left as it is: %s\n", name, clean(one.Error))
			continue
		case len(one.Why) == 0:
			fmt.Fprintf(w, "%s: needs nothing\n", name)
			continue
		case !one.Changed:
			fmt.Fprintf(w, "%s: there are no better pins now\n", name)
		case dryRun:
			fmt.Fprintf(w, "%s: would get new pins\n", name)
		default:
			fmt.Fprintf(w, "%s: has new pins\n", name)
		}
		for _, why := range one.Why {
			fmt.Fprintf(w, "  - %s\n", clean(why))
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "No job that was planned runs or waits.")
	}
}

// replanErrors is the error of jobs that could not be planned, or still wait.
func replanErrors(all []live.Replanned) error {
	failed, waiting := 0, 0
	for _, one := range all {
		switch {
		case one.Error != "":
			failed++
		case one.Report != nil && one.Report.Plan != nil:
			waiting += one.Report.Plan.Missing()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%s could not be planned", count(failed, "job"))
	}
	if waiting > 0 {
		return &waitingError{what: count(waiting, "instance") + " still without a place"}
	}
	return nil
}
