// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/doctor"
	"nomad-gpu-mem/internal/version"
	"nomad-gpu-mem/internal/words"
)

const doctorLong = `Find inconsistencies in the allocation table, and fix them with --fix.

  leak          an orphan claim: its task is gone, its memory is unavailable to others
  phantom       a task or container without a claim
  squatter      unmanaged use: GPU memory in use by processes without a claim
  overlap       units that two tasks have, by Nomad or by Nomad and the table
  unreadable    a value that cannot be read
  dead node     a node that has lost its lease, or is silent
  version skew  a node with another version than this program
  gone GPU      the state of a GPU that no node has found for a day; minor
  no NVML       a node that is alive and cannot read its GPUs
  shared name   two machines that report under one host name
  overclaim     claims that exceed the units of a GPU

Each finding says what was seen, why it is wrong and what would fix it. What doctor
finds depends on its sources: the table always; Nomad if its address is set; on a
node also Docker, where the containers prove what runs.

While tasks start or end, the table, Nomad and Docker differ for a moment: a claim,
a task or a container counts only once it is 2 minutes old. Without Nomad, a claim
without a container counts once it is 10 minutes old, since Docker may still pull
the image. A node without a lease is dead once it has been silent for 10 minutes.

--fix applies what is proven to harm no running task. For everything else it asks
one by one, or applies it with --yes. It leaves alone what changed meanwhile.`

const doctorExit = `Exit codes: as all commands, and
  5  a finding was not fixed; minor findings do not count`

// doctorSchema is the version of doctorReport as JSON.
const doctorSchema = 1

// doctorReport is what `doctor --json` prints.
type doctorReport struct {
	Schema   int         `json:"schema"`
	Asked    []string    `json:"asked"` // sources besides the table: "nomad", "docker"
	Findings []diagnosis `json:"findings"`
	Table    tableInfo   `json:"table"`
}

// tableInfo is where the table is, and the version that was read.
type tableInfo struct {
	Where   string `json:"where"`
	Version uint64 `json:"version"`
}

// diagnosis is a finding and the result of --fix.
type diagnosis struct {
	doctor.Finding
	Fixed bool   `json:"fixed"`
	Error string `json:"error,omitempty"` // of an attempt to fix it
}

// doctorCommand is one call of `doctor`.
type doctorCommand struct {
	app            App
	table          *tableFlags
	nomad          *nomadFlags
	fix, yes, json bool
	in             io.Reader
	out            io.Writer
}

func (a App) newDoctor(table *tableFlags) *cobra.Command {
	d := &doctorCommand{app: a, table: table, nomad: &nomadFlags{getenv: a.Getenv}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find inconsistencies in the table, and fix them",
		Long:  doctorLong + "\n\n" + nomadHelp + "\n\n" + tableHelp + "\n\n" + exitHelp + "\n\n" + doctorExit,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.in, d.out = cmd.InOrStdin(), cmd.OutOrStdout()
			return d.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&d.fix, "fix", false, "fix what is safe, and ask about the rest")
	flags.BoolVar(&d.yes, "yes", false, "with --fix, fix everything without asking")
	flags.BoolVar(&d.json, "json", false, "print JSON (docs/cli.md); asks nothing")
	d.nomad.register(flags)
	return cmd
}

func (d *doctorCommand) run(ctx context.Context) error {
	if d.yes && !d.fix {
		return usageError{errors.New("--yes needs --fix: it answers the questions of --fix")}
	}
	table, err := d.app.open(d.table)
	if err != nil {
		return err
	}
	defer table.Close()
	return d.examine(ctx, table)
}

func (d *doctorCommand) examine(ctx context.Context, table *allocator.Table) error {
	evidence, report, err := d.collect(ctx, table)
	if err != nil {
		return err
	}
	answers := bufio.NewReader(d.in)
	report.Findings = []diagnosis{}
	for _, finding := range doctor.Diagnose(evidence) {
		found := diagnosis{Finding: finding}
		if !d.json {
			fmt.Fprint(d.out, describe(finding))
		}
		if d.fix && d.agreed(finding, answers) {
			d.applyFix(ctx, table, &found)
		}
		report.Findings = append(report.Findings, found)
	}
	return errors.Join(d.write(report), unhealthy(report))
}

// collect reads all available sources: the table, Nomad and the local containers.
func (d *doctorCommand) collect(ctx context.Context, table *allocator.Table) (doctor.Evidence, doctorReport, error) {
	evidence := doctor.Evidence{Now: d.app.Now(), Version: version.Version}
	report := doctorReport{Schema: doctorSchema, Asked: []string{}}
	client, err := d.nomad.open()
	if err != nil {
		return evidence, report, err
	}
	if evidence.Table, err = table.Snapshot(ctx); err != nil {
		return evidence, report, d.table.explain(err)
	}
	report.Table = tableInfo{d.table.describe(), evidence.Table.Version}
	if client != nil {
		if evidence.Nomad, err = nomadEvidence(ctx, client); err != nil {
			return evidence, report, err
		}
		report.Asked = append(report.Asked, "nomad")
	}
	if d.app.Local == nil {
		return evidence, report, nil
	}
	if evidence.Local, err = d.app.Local(ctx); err != nil {
		return evidence, report, err
	}
	if evidence.Local != nil {
		report.Asked = append(report.Asked, "docker")
	}
	return evidence, report, nil
}

// agreed reports whether a remedy may be applied: it is safe, or the operator agrees.
func (d *doctorCommand) agreed(finding doctor.Finding, answers *bufio.Reader) bool {
	switch {
	case finding.Remedy.Action == "":
		return false
	case finding.Remedy.Safe || d.yes:
		return true
	case d.json:
		return false
	case !d.canAsk():
		fmt.Fprintf(d.out, "  %s: not done: it is not proven to be safe, and stdin is not a terminal; --yes does it\n", finding.Remedy.Action)
		return false
	}
	fmt.Fprintf(d.out, "  %s? It is not proven to be safe. [y/N] ", finding.Remedy.Action)
	answer, _ := answers.ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y")
}

// canAsk reports whether the operator can answer on a terminal. An input that is not a
// file can always answer.
func (d *doctorCommand) canAsk() bool {
	file, isFile := d.in.(*os.File)
	return !isFile || isatty.IsTerminal(file.Fd())
}

func (d *doctorCommand) applyFix(ctx context.Context, table *allocator.Table, found *diagnosis) {
	result := "done"
	if err := found.Remedy.Apply(ctx, table); err != nil {
		found.Error = err.Error()
		result = "not done: " + found.Error
	} else {
		found.Fixed = true
	}
	if !d.json {
		fmt.Fprintf(d.out, "  %s: %s\n", found.Remedy.Action, words.Printable(result))
	}
}

func (d *doctorCommand) write(report doctorReport) error {
	if d.json {
		return writeJSON(d.out, report)
	}
	asked := strings.Join(append([]string{"the table (" + report.Table.Where + ")"}, report.Asked...), ", ")
	_, err := fmt.Fprintf(d.out, "%s; asked: %s\n", words.Count(len(report.Findings), "finding"), words.Printable(asked))
	return err
}

// describe renders a finding as text.
func describe(f doctor.Finding) string {
	var where []string
	for _, part := range []string{f.Task, string(f.GPU), string(f.Node)} {
		if part != "" {
			where = append(where, words.Printable(part))
		}
	}
	if len(where) == 0 {
		where = []string{words.Printable(f.Key)}
	}
	kind := strings.ToUpper(string(f.Kind))
	if f.Minor {
		kind += " (minor)"
	}
	return fmt.Sprintf("%s  %s\n  seen: %s\n  why:  %s\n  do:   %s\n",
		kind, strings.Join(where, ", "), words.Printable(f.What), words.Printable(f.Why), words.Printable(f.Do))
}

// findingsError reports findings that were not fixed.
type findingsError struct{ left int }

func (e *findingsError) Error() string { return words.Count(e.left, "finding") + " not fixed" }

func unhealthy(report doctorReport) error {
	left := 0
	for _, found := range report.Findings {
		if !found.Fixed && !found.Minor {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	return &findingsError{left}
}
