// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package model

import (
	"fmt"
	"math/rand/v2"
)

// Verb is an operation on a job.
type Verb string

// The operations.
const (
	Start   Verb = "start"
	Stop    Verb = "stop"
	Purge   Verb = "stop and purge"
	Update  Verb = "update"
	Scale   Verb = "scale"
	Restart Verb = "restart a task"
	Evict   Verb = "stop an allocation"
)

// Verbs are all operations, in the order of the report.
var Verbs = []Verb{Start, Stop, Purge, Update, Scale, Restart, Evict}

// Form is the kind of job under a name.
type Form struct {
	Name   string
	Ends   bool // by itself
	Scales bool
	Weight int // how often it is chosen, beside others
}

// Request describes a job.
type Request struct {
	Form  string
	Units []uint64 // of each requested GPU; none: no slice
	Count int      // instances
}

// Operation is the next thing to do.
type Operation struct {
	Verb Verb
	Job  string
	Request
}

// Churn chooses operations at random. It knows which jobs it has started; the same seed
// gives the same sequence.
type Churn struct {
	random *rand.Rand
	forms  []Form
	most   uint64 // units that a job may request of one GPU
	jobs   []slot
}

// slot is a job name, and the job that has it.
type slot struct {
	name  string
	form  *Form
	runs  bool
	count int
}

// NewChurn returns a churn for a number of jobs at a time.
func NewChurn(seed uint64, jobs int, most uint64, forms []Form) *Churn {
	c := &Churn{random: rand.New(rand.NewPCG(seed, 1)), forms: forms, most: most}
	for n := range jobs {
		c.jobs = append(c.jobs, slot{name: fmt.Sprintf("soak-%02d", n)})
	}
	return c
}

// Next chooses an operation and assumes that it succeeds.
func (c *Churn) Next() Operation {
	s := &c.jobs[c.random.IntN(len(c.jobs))]
	if !s.runs {
		return c.start(s, Start)
	}
	op := Operation{Job: s.name, Request: Request{Form: s.form.Name, Count: s.count}}
	switch chance := c.random.IntN(100); {
	case s.form.Ends && chance < 50, !s.form.Ends && chance < 15:
		return c.start(s, Update)
	case chance < 30 && s.form.Scales:
		s.count = c.random.IntN(4)
		op.Verb, op.Count = Scale, s.count
	case chance < 40:
		op.Verb = Restart
	case chance < 50:
		op.Verb = Evict
	case chance < 75:
		op.Verb, s.runs = Stop, false
	default:
		op.Verb, s.runs, s.form = Purge, false, nil
	}
	return op
}

// start puts a job in the slot. Until it is purged, a job keeps its form: Nomad refuses to
// change a job's type.
func (c *Churn) start(s *slot, verb Verb) Operation {
	if s.form == nil {
		s.form = c.form()
	}
	s.runs, s.count = true, 1
	if s.form.Scales {
		s.count = 1 + c.random.IntN(2)
	}
	return Operation{Verb: verb, Job: s.name, Request: Request{Form: s.form.Name, Units: c.units(), Count: s.count}}
}

// units are of one GPU for most jobs, of two for some, and of none for some.
func (c *Churn) units() []uint64 {
	of := func() uint64 { return 1 + c.random.Uint64N(c.most) }
	switch chance := c.random.IntN(10); {
	case chance < 1:
		return nil
	case chance < 4:
		return []uint64{of(), of()}
	default:
		return []uint64{of()}
	}
}

func (c *Churn) form() *Form {
	sum := 0
	for _, f := range c.forms {
		sum += f.Weight
	}
	at := c.random.IntN(sum)
	for n := range c.forms {
		if at -= c.forms[n].Weight; at < 0 {
			return &c.forms[n]
		}
	}
	panic("weights were summed above")
}

// Jobs returns the names that may have a job.
func (c *Churn) Jobs() (names []string) {
	for _, s := range c.jobs {
		names = append(names, s.name)
	}
	return names
}
