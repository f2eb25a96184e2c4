// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
	"nomad-gpu-mem/internal/words"
)

// reportText prints the result of run as text.
type reportText struct {
	w       io.Writer
	verbose bool // whole IDs
	err     error
}

// write prints the plan and what Nomad did.
func (t *reportText) write(report *live.Report) {
	if t.err = writePlan(t.w, report.Plan); t.err != nil {
		return
	}
	if report.Warnings != "" {
		fmt.Fprintln(t.w, "Nomad warns:", words.Printable(report.Warnings))
	}
	switch {
	case report.Evaluation == "":
		fmt.Fprintln(t.w, "Submitted. Nomad starts it later.")
		return
	case report.Queue != nil:
		fmt.Fprintf(t.w, "Queued: position %d in the batch queue (%s) of node pool %s. Nomad places the job when its turn comes, in evaluation %s.\n",
			report.Queue.Position, words.Printable(report.Queue.Type), words.Printable(report.Queue.Pool), t.id(report.Evaluation))
		return
	case report.Status == "":
		fmt.Fprintf(t.w, "Submitted, planned %s. Nomad decides in evaluation %s.\n", times(report.Rounds), report.Evaluation)
		return
	}
	fmt.Fprintf(t.w, "Evaluation %s %s, planned %s\n", t.id(report.Evaluation), report.Status, times(report.Rounds))
	for _, group := range slices.Sorted(maps.Keys(report.Failures)) {
		fmt.Fprintf(t.w, "Nomad found no place for group %s: %s\n", words.Printable(group), words.Printable(report.Failures[group]))
	}
	switch {
	case len(report.Outcomes) > 0:
		t.err = t.outcomes(report.Outcomes)
	case len(report.Failures) > 0:
		fmt.Fprintln(t.w, "Nothing was started.")
	default:
		fmt.Fprintln(t.w, "Nothing had to be started.")
	}
}

// progress writes one line for each change of a deployment.
func (t *reportText) progress(d live.Deployment) {
	var groups []string
	for _, g := range d.Groups {
		state := fmt.Sprintf("%s %d of %d healthy", words.Printable(g.Group), g.Healthy, g.Desired)
		if g.Unhealthy > 0 {
			state += fmt.Sprintf(", %d unhealthy", g.Unhealthy)
		}
		groups = append(groups, state)
	}
	fmt.Fprintf(t.w, "Deployment %s %s: %s (%s)\n", t.id(d.ID), words.Printable(d.Status), words.Printable(d.Description), strings.Join(groups, "; "))
}

func (t *reportText) outcomes(outcomes []planner.Outcome) error {
	table := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GROUP\tALLOC\tNODE\tGPU\tAS PLANNED")
	for _, o := range outcomes {
		switch {
		case o.Alloc == "":
			fmt.Fprintf(table, "%s\t-\t-\t-\tnot started\n", words.Printable(o.Group))
		case len(o.GPUs) == 0:
			fmt.Fprintf(table, "%s\t%s\t%s\t-\t-\n", words.Printable(o.Group), t.id(o.Alloc), words.Printable(o.NodeName))
		}
		for i, gpu := range o.GPUs {
			if i == 0 {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", words.Printable(o.Group), t.id(o.Alloc), words.Printable(o.NodeName), words.Printable(gpu), yesNo(o.AsPlanned))
			} else {
				fmt.Fprintf(table, "\t\t\t%s\t\n", words.Printable(gpu))
			}
		}
	}
	return table.Flush()
}

// id shortens an ID as Nomad does.
func (t *reportText) id(id string) string {
	if t.verbose || len(id) <= 8 {
		return id
	}
	return id[:8]
}
