// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/internal/planner/live"
)

const runLong = `Plan a job, reserve the planned units, submit the job with its pins, follow Nomad's
evaluation, and report whether Nomad followed the plan. If other tasks took the units
first, the job is planned again.

Running an unchanged job again restarts nothing: running groups keep their pins. The
job file is HCL, which Nomad parses, or JSON; Nomad's UI shows it as the job's
definition. Fields that this program does not know reach Nomad unchanged.

By default the command ends once Nomad has placed the instances. With --follow it waits
for the end of a service's deployment, and fails if the deployment fails.`

const runExample = `  nomad-gpu-mem run job.nomad.hcl
  nomad-gpu-mem run --pin hard --var replicas=4 job.nomad.hcl
  nomad-gpu-mem run --preserve-counts --follow job.nomad.hcl`

// runFlags are the options of run that plan lacks.
type runFlags struct {
	checkIndex     uint64
	policyOverride bool
	detach         bool
	follow         bool
	verbose        bool
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.Uint64Var(&f.checkIndex, "check-index", 0, "submit only if the registered job has this `index` (plan shows it); 0: only if the job is not registered")
	flags.BoolVar(&f.policyOverride, "policy-override", false, "override soft mandatory Sentinel policies")
	flags.BoolVar(&f.detach, "detach", false, "end once Nomad has accepted the job; do not follow its evaluation")
	flags.BoolVar(&f.follow, "follow", false, "wait until the deployment has ended")
	flags.BoolVar(&f.verbose, "verbose", false, "show whole IDs")
}

// submission is what the flags say about submitting the job.
func (f *runFlags) submission(flags *pflag.FlagSet, source *api.JobSubmission) live.Submission {
	how := live.Submission{PolicyOverride: f.policyOverride, Source: source, Detach: f.detach, Follow: f.follow}
	if flags.Changed("check-index") {
		how.CheckIndex = &f.checkIndex
	}
	return how
}

func (a App) newRun(table *tableFlags) *cobra.Command {
	on, flags := newJobCommand(a, table), &runFlags{}
	on.flags.reserves = true
	cmd := &cobra.Command{
		Use:     "run JOB",
		Short:   "Plan a job and submit it",
		Long:    runLong + "\n\n" + plannerNomadHelp + "\n\n" + tableHelp + "\n\n" + planExit,
		Example: runExample,
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags.detach && flags.follow {
				return usageError{errors.New("--detach and --follow exclude each other")}
			}
			p, err := on.open(cmd, args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			return on.flags.explain(on.run(cmd, p, flags))
		},
	}
	on.register(cmd.Flags())
	flags.register(cmd.Flags())
	return cmd
}

func (c *jobCommand) run(cmd *cobra.Command, p *jobSite, flags *runFlags) error {
	how := flags.submission(cmd.Flags(), p.job.source)
	out := reportText{w: cmd.OutOrStdout(), verbose: flags.verbose}
	if !c.asJSON {
		how.Placed = out.write
		how.Progress = out.progress
	}
	report, err := p.Run(cmd.Context(), p.job.Document, p.options, how)
	if err != nil {
		return err
	}
	if c.asJSON {
		err = writeJSON(cmd.OutOrStdout(), report)
	}
	return errors.Join(err, out.err, deviation(report))
}

// deviation is the error of a job that does not run as planned, or only in part.
func deviation(report *live.Report) error {
	if !report.AsPlanned() {
		return &waitingError{what: "Nomad deviated from the plan"}
	}
	if err := unplaced(report.Plan); err != nil {
		return err
	}
	if d := report.Deployment; d != nil && !d.Successful() {
		return &waitingError{what: fmt.Sprintf("deployment %.8s is %s: %s", d.ID, d.Status, d.Description)}
	}
	if len(report.Failures) > 0 {
		return &waitingError{what: "Nomad found no place for all of " + report.Plan.ID}
	}
	return nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times, since other tasks took the units first", n)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
