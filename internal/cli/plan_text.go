// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/words"
)

// writePlan prints a plan as text.
func writePlan(w io.Writer, plan *planner.Plan) error {
	if len(plan.Groups) == 0 {
		_, err := fmt.Fprintf(w, "Job %s asks for no GPU memory and is left unchanged.\n", words.Printable(plan.ID))
		return err
	}
	fmt.Fprintf(w, "Job %s, policy %s, index %d\n", words.Printable(plan.ID), plan.Policy, plan.Index)
	for _, group := range plan.Groups {
		if err := writeGroup(w, group); err != nil {
			return err
		}
	}
	return nil
}

func writeGroup(w io.Writer, group planner.Group) error {
	fmt.Fprintf(w, "\nGroup %s: %s%s\n", words.Printable(group.Name), words.Count(group.Count, "instance"), pinText(group))
	if group.Note != "" {
		fmt.Fprintf(w, "  %s\n", words.Printable(group.Note))
	}
	if len(group.Places) > 0 {
		table := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
		fmt.Fprintln(table, "  NODE\tTASK\tGPU\tMODEL\tUNITS\tMiB\tLEFT\tWHY")
		for _, place := range group.Places {
			for i, s := range place.Slices {
				node, why := words.Printable(place.NodeName), place.Why
				if i > 0 {
					node, why = "", ""
				}
				fmt.Fprintf(table, "  %s\t%s\t%d %s\t%s\t%d\t%d\t%d of %d\t%s\n", node, words.Printable(s.Task), s.Index, words.Printable(s.GPU),
					words.Printable(s.Model), s.Units, s.MiB, s.Left, s.Of, why)
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if group.Replaces > 0 {
		fmt.Fprintf(w, "  Nomad replaces %s for this, following the job's update block.\n", words.Count(group.Replaces, "instance"))
	}
	for _, short := range group.Short {
		fmt.Fprintf(w, "  %s nowhere%s:\n", fits(short.Instances), ever(short))
		for _, why := range short.Why {
			fmt.Fprintf(w, "    - %s\n", words.Printable(why))
		}
	}
	return nil
}

func fits(instances int) string {
	if instances == 1 {
		return "1 instance fits"
	}
	return fmt.Sprintf("%d instances fit", instances)
}

func ever(short planner.Shortage) string {
	if short.Never {
		return ", and would not if nothing else ran"
	}
	return ""
}

func pinText(group planner.Group) string {
	switch {
	case group.Kept && group.Pin == "":
		return ", runs as it is"
	case group.Kept:
		return fmt.Sprintf(", runs and keeps its pin (%s)", group.Pin)
	case group.Pin == planner.Shortlist:
		return fmt.Sprintf(", pin shortlist (%s)", words.Count(len(group.Nodes), "node"))
	case group.Pin != "":
		return ", pin " + string(group.Pin)
	default:
		return ", no pin"
	}
}
