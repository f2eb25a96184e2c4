// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Explanation is what speaks for and against every node.
type Explanation struct {
	Fit []Candidate // best first
	Out []Refusal   // the nearest miss first
}

// Candidate is a node that has room.
type Candidate struct {
	Decision
	Name  string // of the node, for people
	Terms []Term // whose points are the score
}

// Term is what one measure adds to a score.
type Term struct {
	Measure Measure
	Amount  float64 // MiB or parts in a thousand; see Measure
	Points  int64
}

// Refusal is a node that cannot take the request.
type Refusal struct {
	Node, Name string
	Reasons    []string
	Short      Shortage
}

// Shortage is what a node lacks; all zero if it is ruled out whatever it has.
type Shortage struct {
	CPU       int
	MemoryMiB int
	GPUMiB    int // on the GPU that comes nearest, over all asks
}

// Explain says of every node how good a place it is for the request, or why it
// is none. It takes longer than Choose. Its error matches ErrBadRequest.
func (p *Placer) Explain(r Request) (Explanation, error) {
	fit, err := p.Shortlist(r, 0)
	if err != nil {
		return Explanation{}, err
	}
	var e Explanation
	c := newClass(r, p.kinds)
	fits := map[string]bool{}
	for _, d := range fit {
		fits[d.Node] = true
		at := p.byID[d.Node]
		e.Fit = append(e.Fit, Candidate{Decision: d, Name: p.nodes[at].spec.Name, Terms: p.terms(at, &c)})
	}
	for i := range p.nodes {
		if n := &p.nodes[i]; !fits[n.spec.ID] {
			e.Out = append(e.Out, n.refuse(r, &c))
		}
	}
	slices.SortStableFunc(e.Out, func(a, b Refusal) int { return a.Short.compare(b.Short) })
	return e, nil
}

// terms takes the score of a node's best place apart.
func (p *Placer) terms(at int32, c *class) []Term {
	p.assign(at, c)
	p.settle(at, c)
	var terms []Term
	for m, weight := range p.policy.Weights {
		if weight != 0 {
			amount := p.measure(Measure(m))
			terms = append(terms, Term{Measure: Measure(m), Amount: float64(amount) / one, Points: int64(weight) * amount})
		}
	}
	return terms
}

// refuse finds all that keeps a request from a node.
func (n *node) refuse(r Request, c *class) Refusal {
	f := Refusal{Node: n.spec.ID, Name: n.spec.Name}
	if n.spec.Out != "" {
		f.add("%s", n.spec.Out)
	} else if r.Fits != nil {
		if why := r.Fits(&n.spec); why != "" {
			f.add("%s", why)
		}
	}
	if len(f.Reasons) > 0 {
		return f
	}
	if short := r.CPU - n.spec.CPU; short > 0 {
		f.Short.CPU = short
		f.add("CPU: %d wanted, %d free", r.CPU, n.spec.CPU)
	}
	if short := r.MemoryMiB - n.spec.MemoryMiB; short > 0 {
		f.Short.MemoryMiB = short
		f.add("memory: %d MiB wanted, %d MiB free", r.MemoryMiB, n.spec.MemoryMiB)
	}
	for i := range c.asks {
		n.refuseAsk(&c.asks[i], &r.Asks[c.order[i]], &f)
	}
	if len(f.Reasons) == 0 {
		f.add("GPU memory: there is room for each of the %d asks, but not for all together", len(c.asks))
	}
	return f
}

// refuseAsk finds what keeps one ask from all of the node's GPUs.
func (n *node) refuseAsk(a *ask, wanted *Ask, f *Refusal) {
	nearest, free := int32(never), int32(0)
	allowed := 0
	for i, g := range n.gpus {
		need := a.need[g.kind]
		if need == never || a.fits != nil && !a.fits(&n.spec.GPUs[i]) {
			continue
		}
		allowed++
		if short := max(0, need-g.free); short < nearest {
			nearest, free = short, g.free
		}
	}
	switch {
	case len(n.gpus) == 0:
		f.add("it has no GPU")
	case allowed == 0:
		f.add("none of its GPUs can be had: %s wanted", wanted)
	case nearest > 0:
		f.Short.GPUMiB += int(nearest)
		f.add("GPU memory: %s wanted, %d MiB free on the GPU that comes nearest", wanted, free)
	}
}

// add notes a reason, once.
func (f *Refusal) add(format string, args ...any) {
	if reason := fmt.Sprintf(format, args...); !slices.Contains(f.Reasons, reason) {
		f.Reasons = append(f.Reasons, reason)
	}
}

// compare orders shortages: the least GPU memory first, then CPU and memory;
// nodes that lack nothing and are out all the same come last.
func (s Shortage) compare(other Shortage) int {
	none := Shortage{}
	switch {
	case s == other:
		return 0
	case s == none:
		return 1
	case other == none:
		return -1
	}
	return cmp.Or(cmp.Compare(s.GPUMiB, other.GPUMiB), cmp.Compare(s.CPU, other.CPU), cmp.Compare(s.MemoryMiB, other.MemoryMiB))
}

// String says what the ask wants, for people.
func (a Ask) String() string {
	var text string
	switch {
	case a.Whole:
		text = "a whole GPU"
	case a.MiB > 0:
		text = fmt.Sprintf("%d MiB", a.MiB)
	case a.Units == 1:
		text = "1 unit"
	default:
		text = fmt.Sprintf("%d units", a.Units)
	}
	if len(a.Models) > 0 {
		text += " of model " + strings.Join(a.Models, " or ")
	}
	return text
}
