// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

const gpu = "GPU-1"

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// at returns a time in seconds after noon.
func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// of returns a container of the first task of an allocation.
func of(alloc, id string) Container {
	return Container{ID: id, Name: id, Engine: "e", Task: Task{alloc, "app"}, Attempt: alloc + "/" + id, GPUs: []string{gpu}}
}

// units are the given units of the GPU.
func units(numbers ...int) (all []Unit) {
	for _, n := range numbers {
		all = append(all, Unit{gpu, n})
	}
	return all
}

func TestTwoContainersOnOneUnit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		happen func(*Timeline) []Violation
		double bool
	}{
		{"one after the other", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			l.Ended("1", at(5))
			return l.Started(of("b", "2"), at(5))
		}, false},
		{"side by side on other units", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			return l.Started(of("c", "2"), at(1))
		}, false},
		{"two tasks at once", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			return l.Started(of("b", "2"), at(5))
		}, true},
		{"two containers of one task at once", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			return l.Started(of("a", "2"), at(5))
		}, true},
		{"reported twice", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			return l.Started(of("a", "1"), at(5))
		}, false},
		{"reported again after its end", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			l.Ended("1", at(3))
			l.Started(of("b", "2"), at(5))
			return l.Started(of("a", "1"), at(0))
		}, false},
		{"ended while the engine was down", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			l.Listed("e", nil, at(4))
			return l.Started(of("b", "2"), at(5))
		}, false},
		{"still listed after the engine was down", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			l.Listed("e", []string{"1"}, at(4))
			return l.Started(of("b", "2"), at(5))
		}, true},
		{"listed by another engine", func(l *Timeline) []Violation {
			l.Started(of("a", "1"), at(0))
			l.Listed("other", nil, at(4))
			return l.Started(of("b", "2"), at(5))
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := NewTimeline()
			l.Book(Task{"a", "app"}, units(0, 1))
			l.Book(Task{"b", "app"}, units(1, 2))
			l.Book(Task{"c", "app"}, units(2, 3))
			found := test.happen(l)
			if !test.double {
				must.SliceEmpty(t, found)
				return
			}
			must.Len(t, 1, found)
			must.Eq(t, Double, found[0].Kind)
			must.Eq(t, at(5), found[0].At)
		})
	}
}

// Nomad's booking may become known only after both containers have ended.
func TestDoubleFoundLate(t *testing.T) {
	t.Parallel()
	l := NewTimeline()
	l.Started(of("a", "1"), at(0))
	l.Started(of("b", "2"), at(3))
	l.Ended("1", at(5))
	l.Ended("2", at(6))
	l.Started(of("c", "3"), at(7))
	must.Eq(t, []Task{{"a", "app"}, {"b", "app"}, {"c", "app"}}, l.Unbooked())

	must.SliceEmpty(t, l.Book(Task{"a", "app"}, units(0)))
	must.SliceEmpty(t, l.Book(Task{"c", "app"}, units(0)))
	found := l.Book(Task{"b", "app"}, units(0, 1))
	must.Len(t, 1, found)
	must.Eq(t, at(3), found[0].At)
	must.SliceEmpty(t, l.Unbooked())
	must.Eq(t, 3, l.Runs())
}

func TestContainerSeesGPUsOfItsTaskOnly(t *testing.T) {
	t.Parallel()
	l := NewTimeline()
	must.SliceEmpty(t, l.Sees(of("a", "1"), []string{"GPU-2"}, at(0))) // not known yet
	l.Book(Task{"a", "app"}, units(0))
	must.SliceEmpty(t, l.Sees(of("a", "1"), []string{gpu}, at(1)))
	must.Len(t, 1, l.Sees(of("a", "1"), []string{gpu, "GPU-2"}, at(2)))
	must.SliceEmpty(t, l.Sees(of("a", "1"), []string{gpu, "GPU-2"}, at(3))) // reported
}
