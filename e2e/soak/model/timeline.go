// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Unit is one unit of a GPU's memory.
type Unit struct {
	GPU   string
	Index int
}

// Task is one task of one allocation.
type Task struct{ Alloc, Name string }

func (t Task) String() string { return t.Alloc + "/" + t.Name }

// Container is a container with a slice, by its labels.
type Container struct {
	ID, Name, Engine string
	Task             Task
	Attempt          string   // the start of the task that made it
	GPUs             []string // that it sees
}

// Run is one life of a container. A zero To means that it runs.
type Run struct {
	Container
	From, To time.Time
}

// overlaps reports whether both certainly ran at one moment.
func (r *Run) overlaps(other *Run) bool {
	return r.before(other.To) && other.before(r.To)
}

// before reports whether the run began before another's end.
func (r *Run) before(end time.Time) bool { return end.IsZero() || r.From.Before(end) }

// Timeline has all known runs. Each engine reports its events in order.
type Timeline struct {
	runs   []*Run
	booked map[Task][]Unit
	on     map[Unit][]*Run
	known  map[string]bool // pairs of containers that were reported
}

// NewTimeline returns an empty one.
func NewTimeline() *Timeline {
	return &Timeline{booked: map[Task][]Unit{}, on: map[Unit][]*Run{}, known: map[string]bool{}}
}

// Started records that a container runs. A repeated report has no effect: after a pause an
// engine reports past events again.
func (t *Timeline) Started(c Container, at time.Time) []Violation {
	for _, run := range t.runs {
		if run.ID == c.ID && (run.To.IsZero() || at.Before(run.To)) {
			return nil
		}
	}
	run := &Run{Container: c, From: at}
	t.runs = append(t.runs, run)
	return t.place(run)
}

// Ended records that a container's process has ended.
func (t *Timeline) Ended(id string, at time.Time) {
	if run := t.open(id); run != nil {
		run.To = at
	}
}

// Listed records the full list of an engine's running containers, after a time in which
// events may have been missed. A container that ended meanwhile certainly ran until then.
func (t *Timeline) Listed(engine string, running []string, missedSince time.Time) {
	for _, run := range t.runs {
		if run.To.IsZero() && run.Engine == engine && !slices.Contains(running, run.ID) {
			run.To = missedSince
			if run.From.After(missedSince) {
				run.To = run.From
			}
		}
	}
}

// Book records which units Nomad gave to a task. They never change.
func (t *Timeline) Book(task Task, units []Unit) (found []Violation) {
	if _, known := t.booked[task]; known {
		return nil
	}
	t.booked[task] = units
	for _, run := range t.runs {
		if run.Task == task {
			found = append(found, t.place(run)...)
		}
	}
	return found
}

// Booked returns the units of a task, if they are known.
func (t *Timeline) Booked(task Task) ([]Unit, bool) {
	units, known := t.booked[task]
	return units, known
}

// Unbooked returns the tasks with a container whose units are not known yet.
func (t *Timeline) Unbooked() (tasks []Task) {
	for _, run := range t.runs {
		if _, known := t.booked[run.Task]; !known && !slices.Contains(tasks, run.Task) {
			tasks = append(tasks, run.Task)
		}
	}
	return tasks
}

// Running returns the runs that have not ended.
func (t *Timeline) Running() (open []Run) {
	for _, run := range t.runs {
		if run.To.IsZero() {
			open = append(open, *run)
		}
	}
	return open
}

// Runs returns the number of runs.
func (t *Timeline) Runs() int { return len(t.runs) }

func (t *Timeline) open(id string) *Run {
	for _, run := range slices.Backward(t.runs) {
		if run.ID == id && run.To.IsZero() {
			return run
		}
	}
	return nil
}

// place records a run on its units and returns the runs that were there at the same time.
func (t *Timeline) place(run *Run) (found []Violation) {
	for _, unit := range t.booked[run.Task] {
		if slices.Contains(t.on[unit], run) {
			continue
		}
		for _, other := range t.on[unit] {
			if other.ID != run.ID && other.overlaps(run) && t.first("double", run.ID, other.ID) {
				found = append(found, double(unit, other, run))
			}
		}
		t.on[unit] = append(t.on[unit], run)
	}
	return found
}

// first reports whether this violation of these containers is new.
func (t *Timeline) first(what string, ids ...string) bool {
	slices.Sort(ids)
	key := what + " " + strings.Join(ids, " ")
	defer func() { t.known[key] = true }()
	return !t.known[key]
}

func double(unit Unit, a, b *Run) Violation {
	later := a.From
	if b.From.After(later) {
		later = b.From
	}
	return Violation{Kind: Double, At: later, Text: fmt.Sprintf("unit %d of GPU %s: container %s (task %s, attempt %s, since %s) and container %s "+
		"(task %s, attempt %s, since %s) ran at once", unit.Index, unit.GPU,
		a.Name, a.Task, a.Attempt, clock(a.From), b.Name, b.Task, b.Attempt, clock(b.From))}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
