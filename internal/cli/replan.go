// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/words"
)

const replanLong = `Check the jobs that "run" or the webhook has planned, and plan those again that have
an instance without a place or few usable nodes on their shortlist: nodes come, go
and drain while jobs run. Run it from time to time, as a periodic job or by cron, or
once with --watch.

Running tasks are not restarted: only their group's list of nodes changes, and it
keeps the nodes that they run on. All jobs are checked unless some are named. System,
periodic and parameterized jobs are not bound to nodes and are skipped. A job that
would lose fields that the planner does not own is left unchanged.

With --watch it follows Nomad's event stream: it acts when a job is submitted or
scaled, an evaluation is blocked or a node changes, and checks all jobs each
--interval. It prints what it does, until SIGINT or SIGTERM.`

const replanExample = `  nomad-gpu-mem replan --dry-run
  nomad-gpu-mem replan --watch --namespace default`

// settle is how long replan --watch collects events before it acts.
const settle = 3 * time.Second

// replanCommand is the command replan.
type replanCommand struct {
	flags     *plannerFlags
	asJSON    bool
	dryRun    bool
	threshold int
	namespace string
	watch     bool
	interval  time.Duration
}

func (a App) newReplan(table *tableFlags) *cobra.Command {
	c := &replanCommand{flags: newPlannerFlags(table)}
	c.flags.reserves = true
	cmd := &cobra.Command{
		Use:     "replan [JOB...]",
		Short:   "Refresh the pins of jobs that wait",
		Long:    replanLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + planExit,
		Example: replanExample,
		RunE: func(cmd *cobra.Command, jobs []string) error {
			options, err := c.flags.options()
			if err != nil {
				return err
			}
			if c.interval <= 0 {
				return usageError{fmt.Errorf("--interval must be positive, got %s", c.interval)}
			}
			site, err := a.openSite(c.flags)
			if err != nil {
				return err
			}
			defer site.Close()
			if c.watch {
				return c.flags.explain(c.follow(cmd, site.Site, jobs, options))
			}
			return c.flags.explain(c.once(cmd, site.Site, jobs, options))
		},
	}
	c.register(cmd.Flags())
	return cmd
}

func (c *replanCommand) register(flags *pflag.FlagSet) {
	c.flags.register(flags)
	flags.BoolVar(&c.asJSON, "json", false, "print JSON (docs/planner.md)")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only print what would change")
	flags.IntVar(&c.threshold, "threshold", planner.DefaultThreshold, "usable `nodes` below which a shortlist is refreshed")
	flags.StringVar(&c.namespace, "namespace", api.AllNamespacesNamespace, "Nomad's `namespace`; * is all")
	flags.BoolVarP(&c.watch, "watch", "w", false, "follow Nomad's events, and act on them until interrupted")
	flags.DurationVar(&c.interval, "interval", 5*time.Minute, "with --watch: `time` after which all jobs are checked without an event")
}

func (c *replanCommand) once(cmd *cobra.Command, site *live.Site, jobs []string, options planner.Options) error {
	all, err := site.Replan(cmd.Context(), c.namespace, jobs, options, c.threshold, c.dryRun)
	if err != nil {
		return err
	}
	if c.asJSON {
		return errors.Join(writeJSON(cmd.OutOrStdout(), all), replanErrors(all))
	}
	writeReplanned(cmd.OutOrStdout(), all, c.dryRun)
	if len(all) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "No planned job runs or waits.")
	}
	return replanErrors(all)
}

// follow prints each change; as JSON, one line per job.
func (c *replanCommand) follow(cmd *cobra.Command, site *live.Site, jobs []string, options planner.Options) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	return site.Watch(cmd.Context(), options, live.Watching{
		Space: c.namespace, Only: jobs, Threshold: c.threshold, DryRun: c.dryRun, Settle: settle, Every: c.interval,
		Report: func(all []live.Replanned) {
			if !c.asJSON {
				writeReplanned(cmd.OutOrStdout(), all, c.dryRun)
				return
			}
			for _, one := range all {
				_ = out.Encode(one) // a closed pipe ends the program by itself
			}
		},
		Trouble: func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "Retrying: %s\n", words.Printable(err.Error())) },
	})
}

func writeReplanned(w io.Writer, all []live.Replanned, dryRun bool) {
	for _, one := range all {
		name := words.Printable(one.Namespace + "/" + one.Job)
		switch {
		case one.Error != "" && one.Report != nil && one.Report.Evaluation != "":
			fmt.Fprintf(w, "%s: submitted with new pins: %s\n", name, words.Printable(one.Error))
			continue
		case one.Error != "":
			fmt.Fprintf(w, "%s: left unchanged: %s\n", name, words.Printable(one.Error))
			continue
		case len(one.Why) == 0:
			fmt.Fprintf(w, "%s: needs no new pins\n", name)
			continue
		case !one.Changed:
			fmt.Fprintf(w, "%s: no better pins now\n", name)
		case dryRun:
			fmt.Fprintf(w, "%s: would get new pins\n", name)
		default:
			fmt.Fprintf(w, "%s: has new pins\n", name)
		}
		for _, why := range one.Why {
			fmt.Fprintf(w, "  - %s\n", words.Printable(why))
		}
	}
}

// replanErrors returns an error if jobs could not be planned or still wait.
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
		return fmt.Errorf("%s could not be planned", words.Count(failed, "job"))
	}
	if waiting > 0 {
		return &waitingError{what: words.Count(waiting, "instance") + " still fit nowhere"}
	}
	return nil
}
