// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Tally counts an operation and sums its time.
type Tally struct {
	Count   int           `json:"count"`
	Failed  int           `json:"failed,omitempty"` // refused, or without a target
	Total   time.Duration `json:"total_ns"`
	Longest time.Duration `json:"longest_ns"`
}

// Add counts one more.
func (t *Tally) Add(took time.Duration, failed bool) {
	if failed {
		t.Failed++
		return
	}
	t.Count++
	t.Total += took
	t.Longest = max(t.Longest, took)
}

// Report is the result of a soak.
type Report struct {
	Seed        uint64           `json:"seed"`
	Nodes       int              `json:"nodes"`
	GPUs        int              `json:"gpus"`
	Began       time.Time        `json:"began"`
	Churned     time.Duration    `json:"churned_ns"`
	Settled     time.Duration    `json:"settled_ns"` // from the last stop to the quiet end
	Operations  map[string]Tally `json:"operations"`
	Faults      map[string]Tally `json:"faults"`
	Hostile     map[string]Tally `json:"hostile"`
	Containers  int              `json:"containers"`  // of tasks, that ran
	Sandboxes   int              `json:"sandboxes"`   // pause containers that were left for the driver's hourly clean-up
	Directories int              `json:"directories"` // of allocations, that Nomad could not remove while their plugin was dead
	Looks       int              `json:"looks"`
	Blind       int              `json:"blind"` // looks during which the table did not answer
	Notes       []string         `json:"notes,omitempty"`
	Processes   []Trends         `json:"processes"`
	Violations  []Violation      `json:"violations"`
	Leaks       []Leak           `json:"leaks"`
	OthersLeft  []Leak           `json:"others_left,omitempty"` // by killed agents and daemons; does not fail the soak
}

// Err is nil if nothing was violated or leaked. It lists what was, since many a log shows only
// the end of a test's output.
func (r Report) Err() error {
	if len(r.Violations) == 0 && len(r.Leaks) == 0 {
		return nil
	}
	return fmt.Errorf("%d violations, %d leaks; repeat with SEED=%d\n%s",
		len(r.Violations), len(r.Leaks), r.Seed, strings.Join(r.found(), "\n"))
}

// found has a line for each violation and each leak.
func (r Report) found() (lines []string) {
	for _, v := range r.Violations {
		lines = append(lines, fmt.Sprintf("violated at %s: %s: %s", clock(v.At), v.Kind, v.Text))
	}
	for _, l := range r.Leaks {
		lines = append(lines, fmt.Sprintf("leaked: %s: %s", l.Kind, l.Item))
	}
	return lines
}

// JSON returns the report for programs.
func (r Report) JSON() ([]byte, error) { return json.MarshalIndent(r, "", "  ") }

// Write prints the report as tables.
func (r Report) Write(to io.Writer) {
	fmt.Fprintf(to, "seed %d, %d nodes, %d GPUs, churned for %s, quiet after %s\n",
		r.Seed, r.Nodes, r.GPUs, r.Churned.Round(time.Second), r.Settled.Round(time.Second))
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	tallies(table, "OPERATION", "ANSWERED IN", r.Operations)
	tallies(table, "FAULT", "LASTED", r.Faults)
	tallies(table, "HOSTILE JOB", "ANSWERED IN", r.Hostile)
	r.processes(table)
	r.verdict(table)
	_ = table.Flush()
	for _, line := range r.found() {
		fmt.Fprintln(to, line)
	}
	for _, l := range r.OthersLeft {
		fmt.Fprintf(to, "left by a killed agent or daemon: %s: %s\n", l.Kind, l.Item)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(to, "note: %s\n", note)
	}
}

func tallies(table io.Writer, title, duration string, of map[string]Tally) {
	fmt.Fprintf(table, "\n%s\tDONE\tNOT DONE\t%s, MEAN\tLONGEST\t\n", title, duration)
	var sum Tally
	for _, name := range slices.Sorted(maps.Keys(of)) {
		t := of[name]
		line(table, name, t)
		sum.Count, sum.Failed, sum.Total, sum.Longest = sum.Count+t.Count, sum.Failed+t.Failed, sum.Total+t.Total, max(sum.Longest, t.Longest)
	}
	line(table, "all", sum)
}

func line(table io.Writer, name string, t Tally) {
	mean := time.Duration(0)
	if t.Count > 0 {
		mean = t.Total / time.Duration(t.Count)
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t\n", name, t.Count, t.Failed, short(mean), short(t.Longest))
}

func (r Report) processes(table io.Writer) {
	fmt.Fprintln(table, "\nPROCESS\tOVER\tFDS\tPER HOUR\tTHREADS\tPER HOUR\tMIB\tPER HOUR\t")
	for _, p := range r.Processes {
		fmt.Fprintf(table, "%s (pid %d)\t%s\t%d to %d\t%+.0f\t%d to %d\t%+.0f\t%d to %d\t%+.0f\t\n", p.Process, p.PID, short(p.Over),
			p.FDs.First, p.FDs.Last, p.FDs.PerHour, p.Threads.First, p.Threads.Last, p.Threads.PerHour,
			p.RSSKiB.First/1024, p.RSSKiB.Last/1024, p.RSSKiB.PerHour/1024)
	}
}

func (r Report) verdict(table io.Writer) {
	fmt.Fprintf(table, "\nINVARIANT\tVIOLATED\t\n")
	for _, kind := range Kinds {
		count := 0
		for _, v := range r.Violations {
			if v.Kind == kind {
				count++
			}
		}
		fmt.Fprintf(table, "%s\t%d\t\n", kind, count)
	}
	fmt.Fprintf(table, "leaks\t%d\t\n", len(r.Leaks))
	fmt.Fprintf(table, "looks, of them blind\t%d, %d\t\n", r.Looks, r.Blind)
	fmt.Fprintf(table, "containers of tasks\t%d\t\n", r.Containers)
	fmt.Fprintf(table, "pause containers left for an hour\t%d\t\n", r.Sandboxes)
	fmt.Fprintf(table, "directories that Nomad left\t%d\t\n", r.Directories)
}

func short(d time.Duration) string {
	if d >= time.Minute {
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	}
	return d.Round(10 * time.Millisecond).String()
}
