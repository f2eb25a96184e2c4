// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/words"
)

// defaultNamespace is Nomad's default namespace.
const defaultNamespace = "default"

// leastTask is the least width of the column of tasks, if not all columns fit.
const leastTask = 16

// Fixed widths of columns.
const (
	allocWidth = 8
	unitsWidth = len("UNITS")
	mibWidth   = 6
	sinceWidth = len("SINCE")
)

// legend lays out the table of claims. All GPUs have the same columns.
type legend struct {
	mark, task, state, container int // widths
	gap                          string
	namespaces                   bool // whether tasks are named with their namespace
}

// newLegend fits the columns into width.
func newLegend(nodes []Node, width int) legend {
	l := legend{mark: 1, task: len("TASK"), state: len("STATE"), container: len("CONTAINER"), gap: "  "}
	claims := allClaims(nodes)
	l.namespaces = slices.ContainsFunc(claims, func(c Claim) bool {
		return !c.State.OutsideNomad() && c.Namespace != defaultNamespace
	})
	for _, claim := range claims {
		l.mark = max(l.mark, columns(claim.Mark))
		l.task = max(l.task, columns(l.taskPath(claim)))
		l.state = max(l.state, columns(words.Printable(string(claim.State))))
		l.container = max(l.container, len(shortContainer(claim)))
	}
	if l.width() > width {
		l.gap = " "
	}
	l.task = max(l.task-max(l.width()-width, 0), leastTask)
	return l
}

func allClaims(nodes []Node) []Claim {
	var all []Claim
	for _, node := range nodes {
		for _, gpu := range node.GPUs {
			all = append(all, gpu.Claims...)
		}
	}
	return all
}

func (l *legend) width() int {
	return l.mark + l.task + allocWidth + unitsWidth + mibWidth + l.state + l.container + sinceWidth +
		7*len(l.gap)
}

// row joins cells into a line. The mark is already painted.
func (l *legend) row(mark, task, alloc, units, mib, state, container, since string) string {
	return strings.TrimRight(strings.Join([]string{
		mark, fitMiddle(task, l.task), fit(alloc, allocWidth), fitRight(units, unitsWidth), fitRight(mib, mibWidth),
		fit(state, l.state), fit(container, l.container), fitRight(since, sinceWidth),
	}, l.gap), " ")
}

func (l *legend) header() string {
	return l.row(fit("", l.mark), "TASK", "ALLOC", "UNITS", "MiB", "STATE", "CONTAINER", "SINCE")
}

func (l *legend) claim(p paint, c Claim, now time.Time) string {
	mark := []rune(c.Mark)[0]
	painted := p.unit(mark, c.Mark) + strings.Repeat(" ", l.mark-columns(c.Mark))
	return l.row(painted, l.taskPath(c), words.Printable(c.Alloc[:min(len(c.Alloc), allocWidth)]), strconv.Itoa(c.UnitCount),
		strconv.FormatUint(c.MiB, 10), words.Printable(string(c.State)), shortContainer(c), age(now, since(c)))
}

// taskPath returns the displayed name of a task, or of a holder outside Nomad. The
// namespace is omitted if all tasks are in the default one.
func (l *legend) taskPath(c Claim) string {
	if c.State.OutsideNomad() {
		return words.Printable(c.Task) + " (outside Nomad)"
	}
	path := []string{c.Namespace, c.Job, c.Group, c.Task}
	if !l.namespaces {
		path = path[1:]
	}
	return words.Printable(strings.Join(path, "/"))
}

// shortContainer shortens the container's ID as Docker's tools do.
func shortContainer(c Claim) string {
	return words.Printable(c.Container[:min(len(c.Container), 12)])
}

// since returns when the claim entered its state.
func since(c Claim) time.Time {
	if c.State == allocator.Running && !c.RunningAt.IsZero() {
		return c.RunningAt
	}
	return c.ClaimedAt
}

// age returns how long ago t was, in one unit. Clocks of nodes differ a little: a future
// time counts as now.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := now.Sub(t); {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
