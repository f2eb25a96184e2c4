// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"cmp"
	"slices"
)

// place is a node as it would be after a placement.
type place struct {
	cpu, mem  int
	gpus      []gpu
	taken     []uint64 // by GPU: the apart bits of asks that it serves
	free      int      // MiB of all GPUs
	size      int      // MiB of all GPUs, used or not
	remainder int      // MiB left on the GPUs that asks were given
	scarcity  int64    // see target.price
	misfit    int64    // see target.misfit
}

// assigner finds GPUs for the asks of one request on one node. It is reused to save
// allocations.
type assigner struct {
	place
	before  baseline // of the node as it is
	had     rooms    // likewise
	groups  []group  // see measure.go
	sifted  []sifted // see measure.go
	chosen  []int32  // GPU of each ask, in the order of the class
	options [][]option
	steps   int
}

// option is a GPU for an ask, and how good the node would be then.
type option struct {
	gpu   int32
	score int64
}

// maxSteps bounds the search on one node. Asks that must be apart and asks of
// one size need no search; only odd mixtures come near it.
const maxSteps = 4096

// unfit is the score of a node that cannot take a request.
const unfit = -1 << 63

// assign returns the score of the best way found to serve the class on a node,
// or unfit; the way is in p.work.chosen. The asks are served one after another,
// the largest first, each in the best way at that point, with backtracking.
func (p *Placer) assign(at int32, c *class) int64 {
	n := &p.nodes[at]
	if n.spec.Out != "" || n.spec.CPU < c.cpu || n.spec.MemoryMiB < c.mem || len(n.gpus) == 0 && len(c.asks) > 0 {
		return unfit
	}
	w := &p.work
	w.load(n, c)
	w.before, w.had = p.baseline(at), n.counted.rooms
	if len(c.asks) == 0 {
		return p.score()
	}
	return p.serve(n, c, 0)
}

// load sets the place to the node with the class's CPU gone.
func (w *assigner) load(n *node, c *class) {
	w.gpus = append(w.gpus[:0], n.gpus...)
	w.taken = append(w.taken[:0], make([]uint64, len(n.gpus))...)
	w.cpu, w.mem, w.size = n.spec.CPU-c.cpu, n.spec.MemoryMiB-c.mem, n.size
	w.free, w.remainder, w.scarcity, w.misfit, w.steps = 0, 0, 0, 0, 0
	for _, g := range n.gpus {
		w.free += int(g.free)
	}
	w.chosen = slices.Grow(w.chosen[:0], len(c.asks))[:len(c.asks)]
	for len(w.options) < len(c.asks) {
		w.options = append(w.options, nil)
	}
}

// serve finds GPUs for the asks from the i-th on.
func (p *Placer) serve(n *node, c *class, i int) int64 {
	w := &p.work
	a := &c.asks[i]
	options := w.options[i][:0]
	for g := range w.gpus {
		if w.steps++; w.steps > maxSteps {
			return unfit
		}
		if w.fits(n, a, g) && (p.policy.Ties == TiesRandom || !w.alike(n, a, g)) {
			w.take(a, g, p.target)
			options = append(options, option{int32(g), p.score()})
			w.undo(a, g, p.target)
		}
	}
	w.options[i] = options
	if i == len(c.asks)-1 {
		return p.last(options, i)
	}
	slices.SortStableFunc(options, func(x, y option) int { return cmp.Compare(y.score, x.score) })
	for _, o := range options {
		w.take(a, int(o.gpu), p.target)
		w.chosen[i] = o.gpu
		if score := p.serve(n, c, i+1); score != unfit {
			return score
		}
		w.undo(a, int(o.gpu), p.target)
	}
	return unfit
}

// last chooses the best option for the last ask.
func (p *Placer) last(options []option, i int) int64 {
	best := option{score: unfit}
	equal := 0
	for _, o := range options {
		switch {
		case o.score > best.score:
			best, equal = o, 1
		case o.score == best.score && p.policy.Ties == TiesRandom:
			if equal++; p.random.IntN(equal) == 0 {
				best = o
			}
		}
	}
	p.work.chosen[i] = best.gpu
	return best.score
}

func (w *assigner) fits(n *node, a *ask, g int) bool {
	have := w.gpus[g]
	return have.free >= a.need[have.kind] && w.taken[g]&a.apart == 0 && (a.fits == nil || a.fits(&n.spec.GPUs[g]))
}

// alike reports whether an earlier GPU is in the same state, so that this one
// need not be tried.
func (w *assigner) alike(n *node, a *ask, g int) bool {
	for e := range g {
		if w.gpus[e] == w.gpus[g] && w.taken[e] == w.taken[g] && (a.fits == nil || a.fits(&n.spec.GPUs[e])) {
			return true
		}
	}
	return false
}

// take takes an ask's memory from a GPU.
func (w *assigner) take(a *ask, g int, t *target) { w.move(a, g, t, +1) }

// undo undoes take.
func (w *assigner) undo(a *ask, g int, t *target) { w.move(a, g, t, -1) }

func (w *assigner) move(a *ask, g int, t *target, sign int32) {
	have := &w.gpus[g]
	need := sign * a.need[have.kind]
	if sign < 0 {
		w.remainder -= int(have.free)
	}
	w.misfit -= t.misfit(*have)
	have.free -= need
	w.misfit += t.misfit(*have)
	if sign > 0 {
		w.remainder += int(have.free)
	}
	w.free -= int(need)
	w.taken[g] ^= a.apart
	w.scarcity += int64(need) * t.price[have.kind]
}
