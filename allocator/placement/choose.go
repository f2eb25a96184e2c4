// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"slices"
)

// Choose returns the best place for a request, without taking it: see Place. If no node fits,
// the error is ErrNoRoom; if the request is invalid, it matches ErrBadRequest.
func (p *Placer) Choose(r Request) (Decision, error) {
	s, err := p.rank(r)
	if err != nil {
		return Decision{}, err
	}
	best, found := p.best(s, r.Fits)
	if !found {
		return Decision{}, ErrNoRoom
	}
	return p.decide(best, s, r), nil
}

// Shortlist returns the best place on each of the best nodes, best first, count
// at most; all if count is 0.
func (p *Placer) Shortlist(r Request, count int) ([]Decision, error) {
	s, err := p.rank(r)
	if err != nil {
		return nil, err
	}
	var at []int32
	for i := range s.scores {
		if s.scores[i] != unfit && p.allowed(int32(i), r.Fits) {
			at = append(at, int32(i))
		}
	}
	slices.SortFunc(at, func(i, j int32) int {
		return cmp.Or(cmp.Compare(p.total(s, j), p.total(s, i)), cmp.Compare(p.nodes[i].order, p.nodes[j].order))
	})
	if count > 0 {
		at = at[:min(count, len(at))]
	}
	decisions := make([]Decision, len(at))
	for i := range at {
		decisions[i] = p.decide(at[i], s, r)
	}
	return decisions, nil
}

// rank updates the scores of all nodes for a request.
func (p *Placer) rank(r Request) (*scored, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if p.target == nil {
		p.retarget()
	}
	s := p.scores.of(r, p.kinds)
	if missing := len(p.nodes) - len(s.scores); missing > 0 {
		s.scores = append(s.scores, make([]int64, missing)...)
		s.version = append(s.version, make([]uint32, missing)...)
		s.losses = append(s.losses, make([]uint16, missing)...)
	}
	for i, version := range p.version {
		if s.version[i] != version {
			s.scores[i], s.losses[i] = p.rate(int32(i), &s.class)
			s.version[i] = version
		}
	}
	p.losses.update()
	return s, nil
}

// total is the score of a node with what its place costs in rooms.
func (p *Placer) total(s *scored, at int32) int64 { return s.scores[at] + p.losses.cost[s.losses[at]] }

// retarget computes the target again, which invalidates all scores.
func (p *Placer) retarget() {
	s := p.supply()
	demand := p.demand
	if p.learned {
		demand = slices.Concat(p.prior(), demand)
	}
	p.target = newTarget(demand, p.policy, s)
	p.losses = newLosses(p.target, p.policy, s)
	p.scores.clear()
	for i := range p.version {
		p.nodes[i].counted = counted{}
		p.changed(int32(i))
	}
}

// best returns the position of the best node that is allowed.
func (p *Placer) best(s *scored, fits func(*Node) string) (at int32, found bool) {
	best, equal := int64(unfit), 0
	for i, score := range s.scores {
		if score == unfit {
			continue
		}
		score += p.losses.cost[s.losses[i]]
		if score < best || !p.allowed(int32(i), fits) {
			continue
		}
		switch {
		case score > best:
			at, best, equal = int32(i), score, 1
		case p.policy.Ties == TiesRandom:
			if equal++; p.random.IntN(equal) == 0 {
				at = int32(i)
			}
		case p.nodes[i].order < p.nodes[at].order:
			at = int32(i)
		}
	}
	return at, equal > 0
}

func (p *Placer) allowed(at int32, fits func(*Node) string) bool {
	return fits == nil || fits(&p.nodes[at].spec) == ""
}

// decide names the place that is best on a node.
func (p *Placer) decide(at int32, s *scored, r Request) Decision {
	n := &p.nodes[at]
	d := Decision{Node: n.spec.ID, CPU: r.CPU, MemoryMiB: r.MemoryMiB, Score: p.assign(at, &s.class) + p.losses.cost[s.losses[at]]}
	if len(s.asks) > 0 {
		d.Slices = make([]Slice, len(s.asks))
	}
	for i, a := range s.asks {
		g := p.work.chosen[i]
		spec := &n.spec.GPUs[g]
		d.Slices[s.order[i]] = Slice{GPU: spec.ID, Units: int(a.need[n.gpus[g].kind]) / spec.UnitMiB}
	}
	return d
}
