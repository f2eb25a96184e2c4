// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"nomad-gpu-mem/internal/words"
)

const (
	// figuresWidth is the width of figures(), the right column.
	figuresWidth = len("claimed 1234567 of 1234567 MiB")
	// leastBar is the width of a bar on the narrowest terminal.
	leastBar = 16
	// silentAfter is how long a device plugin may be silent before its node is marked:
	// several reporting intervals.
	silentAfter = 3 * time.Minute
)

// emptyText is shown for a table without nodes, GPUs and problems.
const emptyText = `The allocation table is empty: no device plugin has reported a node.

  Table: %s

Is that the table that the plugins use? Their "table" block must have the same
values as --table-store, --table-address and --table-prefix (see --help).
Is the device plugin loaded? "nomad node status -verbose <node>" lists gpu-mem
devices if it is; if not, Nomad's log says why.
`

// text draws a report.
type text struct {
	paint
	strings.Builder
	legend legend
}

// draw returns the report as text that fits the paint's width.
func draw(r Report, p paint) string {
	t := &text{paint: p, legend: newLegend(r.Nodes, p.width)}
	if len(r.Nodes) == 0 && len(r.Problems) == 0 {
		fmt.Fprintf(t, emptyText, words.Printable(r.Table))
		return t.String()
	}
	t.line(t.dim(words.Printable(r.Table)))
	t.summary(words.Count(r.Total.Nodes, "node")+", "+words.Count(r.Total.GPUs, "GPU")+", "+words.Count(r.Total.Claims, "claim"),
		nil, r.Total.Memory, t.bold)
	for _, node := range r.Nodes {
		t.line("")
		t.node(node, r.At)
	}
	t.problems(r.Problems)
	return t.String()
}

func (t *text) line(s string) { t.WriteString(strings.TrimRight(s, " ") + "\n") }

// summary writes two lines: on the left the name and free memory, on the right how much is
// claimed and how much is used.
func (t *text) summary(first string, more []string, m Memory, style func(string) string) {
	left := max(t.width-figuresWidth-1, leastBar)
	free := fmt.Sprintf("free %d MiB", m.FreeMiB)
	if m.UnavailableMiB > 0 {
		free += fmt.Sprintf(", unavailable %d", m.UnavailableMiB)
	}
	second := strings.Join(append([]string{free}, more...), ", ")
	t.line(style(fit(first, left)) + " " + style(figures("claimed", m.ClaimedMiB, m.OfferedMiB)))
	t.line(t.dim(fit(second, left)) + " " + figures("used", m.UsedMiB, m.WholeMiB))
}

func figures(what string, part, whole uint64) string {
	return fmt.Sprintf("%-7s %7d of %7d MiB", what, part, whole)
}

func (t *text) node(n Node, now time.Time) {
	first, style := words.Printable(string(n.Name)), t.bold
	if n.Driver != "" {
		first += "  driver " + words.Printable(n.Driver)
	}
	switch {
	case !n.Reported:
		first += "  no device plugin reports this node"
		style = t.bad
	case n.Dead:
		first += fmt.Sprintf("  dead, seen %s ago", age(now, n.LastSeen))
		style = t.bad
	case now.Sub(n.LastSeen) > silentAfter:
		first += fmt.Sprintf("  last seen %s ago", age(now, n.LastSeen))
		style = t.warn
	default:
		first += fmt.Sprintf("  seen %s ago", age(now, n.LastSeen))
	}
	var more []string
	if n.Address != "" {
		more = append(more, words.Printable(n.Address))
	}
	t.summary(first, more, n.Memory, style)
	if n.Fault != "" {
		t.line(t.bad("  ! its GPUs cannot be read: " + words.Printable(n.Fault)))
	}
	if len(n.GPUs) == 0 {
		t.line("  no GPU")
	}
	needHeader := true
	for i, gpu := range n.GPUs {
		if i > 0 {
			t.line("")
		}
		t.gpu(gpu)
		if needHeader && len(gpu.Claims) > 0 {
			t.line(t.dim(t.legend.header()))
			needHeader = false
		}
		for _, claim := range gpu.Claims {
			t.line(t.legend.claim(t.paint, claim, now))
		}
	}
}

// gpu writes the GPU's title, its bar, below it the used part, and its notes.
func (t *text) gpu(g GPU) {
	t.line(t.title(g))
	width := max(t.width-figuresWidth-1, leastBar)
	cells := bar(grouped(g), width)
	pad := strings.Repeat(" ", width-len(cells)+1)
	t.line(t.cells(cells) + pad + figures("claimed", g.ClaimedMiB, g.OfferedMiB))
	if g.Reported {
		used := strings.Repeat("▔", usedCells(len(cells), g.Memory))
		t.line(t.used(used, g) + strings.Repeat(" ", width-columns(used)+1) + figures("used", g.UsedMiB, g.WholeMiB))
	}
	for _, note := range g.Notes {
		t.line(t.bad("! ") + t.warn(words.Printable(note)))
	}
}

func (t *text) used(cells string, g GPU) string {
	if g.UnmanagedMiB > 0 || g.UnattributedMiB > 0 {
		return t.warn(cells)
	}
	return t.dim(cells)
}

// title cuts the model so that the UUID fits: the operator copies it.
func (t *text) title(g GPU) string {
	if !g.Reported {
		return t.bold("GPU ") + words.Printable(string(g.ID))
	}
	index := fmt.Sprintf("GPU %d", g.Index)
	rest := fmt.Sprintf("%d × %d MiB  %s", g.Units, g.UnitMiB, words.Printable(string(g.ID)))
	model := strings.TrimPrefix(words.Printable(g.Model), "NVIDIA ")
	room := t.width - columns(index) - columns(rest) - 4
	if columns(model) > room {
		model = fit(model, max(room, 4))
	}
	return t.bold(index+"  "+model) + "  " + rest
}

func (t *text) problems(problems []Problem) {
	if len(problems) == 0 {
		return
	}
	t.line("")
	t.line(t.bad(words.Count(len(problems), "value") + " cannot be read; the plugins and this program leave them unchanged"))
	for _, problem := range problems {
		t.line("  " + words.Printable(problem.Key))
		t.line("    " + words.Printable(problem.Error))
	}
}
