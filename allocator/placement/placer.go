// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Placer has a model of the cluster and finds places in it.
type Placer struct {
	policy Policy
	seed   uint64
	random *rand.Rand

	nodes   []node // a node keeps its position for good
	byID    map[string]int32
	version []uint32 // by position: grows with every change of the node
	kinds   []kind

	demand  []Class
	learned bool    // the demand: from tasks that were seen
	target  *target // made of the demand when it is first needed; nil before
	losses  losses  // of the target
	scores  cache
	work    assigner
}

// node is a Node in numbers.
type node struct {
	spec  Node // with the amounts that are free now
	gpus  []gpu
	size  int    // MiB of all its GPUs
	order uint64 // the smaller goes first when scores are equal

	counted counted // of it as it is; see losses.go

	now        baseline // of the node as it is; see Placer.baseline
	nowVersion uint32   // of the node that now is of, 0 if of none
}

// counted is what losses have counted of a node.
type counted struct {
	rooms   rooms
	freeMiB int
}

// gpu is a GPU in numbers.
type gpu struct {
	free int32 // MiB
	kind int32
}

// New returns a Placer without nodes. Equal seeds give equal decisions.
func New(policy Policy, seed uint64) *Placer {
	return &Placer{
		policy: policy,
		seed:   seed,
		random: rand.New(rand.NewPCG(seed, seed)),
		byID:   map[string]int32{},
		scores: newCache(),
	}
}

// SetNode adds or replaces a node.
func (p *Placer) SetNode(spec Node) {
	at, known := p.byID[spec.ID]
	if !known {
		at = int32(len(p.nodes))
		p.byID[spec.ID] = at
		p.nodes = append(p.nodes, node{order: p.tieOrder(spec.ID, at)})
		p.version = append(p.version, 1)
	}
	p.fill(&p.nodes[at], spec)
	p.changed(at)
}

// fill sets what is known of a node.
func (p *Placer) fill(n *node, spec Node) {
	spec.GPUs = slices.Clone(spec.GPUs)
	gpus, size := make([]gpu, len(spec.GPUs)), 0
	for i, g := range spec.GPUs {
		gpus[i] = gpu{free: int32(g.FreeMiB()), kind: p.kindOf(g)}
		size += g.Units * g.UnitMiB
	}
	if !slices.EqualFunc(gpus, n.gpus, func(a, b gpu) bool { return a.kind == b.kind }) {
		p.target = nil // it knows which GPUs there are
	}
	n.spec, n.gpus, n.size = spec, gpus, size
}

// Node returns the current state of a node.
func (p *Placer) Node(id string) (Node, bool) {
	at, known := p.byID[id]
	if !known {
		return Node{}, false
	}
	spec := p.nodes[at].spec
	spec.GPUs = slices.Clone(spec.GPUs)
	return spec, true
}

// SetDemand sets what future tasks will ask for. Only policies that weigh misfit,
// fragmentation, stranding, scarcity or room use it. It invalidates all scores, so call it
// when the demand has changed, not for every task.
func (p *Placer) SetDemand(classes []Class) {
	p.demand, p.learned = slices.Clone(classes), false
	p.target = nil
}

// Place takes a place. It fails, without a change, if the place is no longer free.
func (p *Placer) Place(d Decision) error { return p.apply(d, -1) }

// Remove releases a place. It fails, without a change, if more would be free than exists.
func (p *Placer) Remove(d Decision) error { return p.apply(d, +1) }

// apply adds or takes what a decision holds.
func (p *Placer) apply(d Decision, sign int) error {
	at, known := p.byID[d.Node]
	if !known {
		return fmt.Errorf("unknown node %s", d.Node)
	}
	n := &p.nodes[at]
	if sign < 0 && (n.spec.CPU < d.CPU || n.spec.MemoryMiB < d.MemoryMiB) {
		return fmt.Errorf("node %s has CPU %d and %d MiB of memory left, %d and %d are needed",
			d.Node, n.spec.CPU, n.spec.MemoryMiB, d.CPU, d.MemoryMiB)
	}
	for i, s := range d.Slices {
		if err := n.slice(s, sign); err != nil {
			for _, done := range d.Slices[:i] {
				_ = n.slice(done, -sign) // it was done a moment ago
			}
			return fmt.Errorf("node %s: %w", d.Node, err)
		}
	}
	n.spec.CPU += sign * d.CPU
	n.spec.MemoryMiB += sign * d.MemoryMiB
	p.changed(at)
	return nil
}

// slice adds or takes one slice.
func (n *node) slice(s Slice, sign int) error {
	for i := range n.spec.GPUs {
		g := &n.spec.GPUs[i]
		if g.ID != s.GPU {
			continue
		}
		free := g.Free + sign*s.Units
		if free < 0 || free > g.Units {
			return fmt.Errorf("GPU %s has %d of %d units free, cannot change that by %d", g.ID, g.Free, g.Units, sign*s.Units)
		}
		g.Free = free
		n.gpus[i].free = int32(g.FreeMiB())
		return nil
	}
	return fmt.Errorf("unknown GPU %s", s.GPU)
}

// changed makes scores of a node stale.
func (p *Placer) changed(at int32) {
	p.version[at]++
	if p.target != nil {
		p.recount(at)
	}
}

// kindOf returns the number of the GPU's kind.
func (p *Placer) kindOf(g GPU) int32 {
	k := kind{model: g.Model, sizeMiB: g.Units * g.UnitMiB, unitMiB: g.UnitMiB}
	at := slices.Index(p.kinds, k)
	if at < 0 {
		at = len(p.kinds)
		p.kinds = append(p.kinds, k)
		p.scores.clear() // classes know their need of every kind
	}
	return int32(at)
}

// tieOrder ranks a node among those with the same score.
func (p *Placer) tieOrder(id string, at int32) uint64 {
	if p.policy.Ties == TiesByOrder {
		return uint64(at)
	}
	return mix(p.seed, id)
}
