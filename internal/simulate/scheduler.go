// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"time"

	"nomad-gpu-mem/allocator/placement"
)

// Scheduler places tasks, one after another.
type Scheduler interface {
	// Place places a task; ok is false if it fits nowhere. The number identifies the task.
	Place(number int, task Task) (ok bool, err error)

	// End removes a task.
	End(number int) error
}

// Steering is a policy with what it knows of the demand.
type Steering struct {
	Policy  placement.Policy
	Learned bool // whether the demand is learned from the tasks that arrived, not given
}

// Name names policy and knowledge.
func (s Steering) Name() string {
	if s.Learned {
		return s.Policy.Name + " (learned)"
	}
	return s.Policy.Name
}

// Contender measures the policy alone: tasks are always placed where it chooses.
func (s Steering) Contender() Contender {
	return Contender{Name: s.Name(), New: func(t *Trace, seed uint64) (Scheduler, error) {
		return &policyScheduler{guide: s.NewGuide(t, seed), placed: map[int]placement.Decision{}}, nil
	}}
}

// Guide is a Placer that knows the demand.
type Guide struct {
	*placement.Placer
	learn *learner // nil if the demand is given
}

// NewGuide returns a guide to the trace's empty cluster.
func (s Steering) NewGuide(t *Trace, seed uint64) *Guide {
	g := &Guide{Placer: placement.New(s.Policy, seed)}
	for _, n := range t.Nodes {
		g.SetNode(n)
	}
	if s.Learned {
		g.learn = newLearner()
	} else {
		g.SetDemand(t.Classes())
	}
	return g
}

// Observe must be called for every task that arrives, before its place is
// chosen.
func (g *Guide) Observe(r placement.Request) {
	if g.learn != nil && g.learn.observe(r) {
		g.Learn(g.learn.history.Classes())
	}
}

// policyScheduler places tasks where a guide chooses.
type policyScheduler struct {
	guide  *Guide
	placed map[int]placement.Decision
}

func (s *policyScheduler) Place(number int, task Task) (bool, error) {
	s.guide.Observe(task.Request)
	d, err := s.guide.Choose(task.Request)
	if errors.Is(err, placement.ErrNoRoom) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.placed[number] = d
	return true, s.guide.Place(d)
}

func (s *policyScheduler) End(number int) error {
	d := s.placed[number]
	delete(s.placed, number)
	return s.guide.Remove(d)
}

// learner learns the demand from the tasks that arrived. Its clock ticks once a
// task.
type learner struct {
	history *placement.History
	seen    int
	next    int // number of tasks at which the demand is next updated
}

const (
	halfLife   = 4000 // tasks
	moreSeen   = 8    // update when it has seen an eighth more
	laterLooks = 1000 // tasks between updates, at most
)

func newLearner() *learner {
	return &learner{history: placement.NewHistory(halfLife * time.Second), next: 1}
}

// observe reports whether to update the demand from the history. Like the planner, it
// updates from the first task on; later only when the history has grown by a part, since an
// update takes milliseconds.
func (l *learner) observe(r placement.Request) bool {
	l.history.Observe(r, time.Unix(int64(l.seen), 0))
	l.seen++
	if l.seen < l.next {
		return false
	}
	l.next += min(1+l.next/moreSeen, laterLooks)
	return true
}
