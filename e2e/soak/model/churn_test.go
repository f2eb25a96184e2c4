// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"testing"

	"github.com/shoenig/test/must"
)

var testForms = []Form{
	{Name: "service", Scales: true, Weight: 5},
	{Name: "batch", Ends: true, Weight: 3},
	{Name: "never", Weight: 0},
}

func TestChurnIsRepeatable(t *testing.T) {
	t.Parallel()
	sequence := func(seed uint64) (all []Operation) {
		c := NewChurn(seed, 12, 8, testForms)
		for range 500 {
			all = append(all, c.Next())
		}
		return all
	}
	must.Eq(t, sequence(7), sequence(7))
	must.NotEq(t, sequence(7), sequence(8))
}

// Each operation on a job is possible after the earlier ones, and all operations occur.
func TestChurnFitsTheJobs(t *testing.T) {
	t.Parallel()
	c := NewChurn(1, 12, 8, testForms)
	runs, form, verbs, gpus := map[string]bool{}, map[string]string{}, map[Verb]int{}, map[int]int{}
	for range 2000 {
		op := c.Next()
		verbs[op.Verb]++
		must.SliceContains(t, c.Jobs(), op.Job)
		must.Eq(t, op.Verb != Start, runs[op.Job], must.Sprintf("%+v", op))
		if form[op.Job] != "" {
			must.Eq(t, form[op.Job], op.Form) // Nomad refuses another type
		}
		must.NotEq(t, "never", op.Form)
		switch op.Verb {
		case Start, Update:
			gpus[len(op.Units)]++
			for _, units := range op.Units {
				must.Between(t, 1, units, 8)
			}
		case Scale:
			must.Eq(t, "service", op.Form)
			must.Between(t, 0, op.Count, 3)
		}
		runs[op.Job] = op.Verb != Stop && op.Verb != Purge
		form[op.Job] = op.Form
		if op.Verb == Purge {
			form[op.Job] = ""
		}
	}
	for _, verb := range Verbs {
		must.Positive(t, verbs[verb], must.Sprint(verb))
	}
	for _, n := range []int{0, 1, 2} {
		must.Positive(t, gpus[n], must.Sprintf("%d GPUs", n))
	}
}
