// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import "math"

// Measures are integers with this many binary places, so that equal places have
// equal scores.
const fraction = 16

// one is 1 as a measure.
const one = 1 << fraction

// baseline has the measures from which growth is counted.
type baseline struct{ fragments, stranded int64 }

// group is a number of GPUs in the same state.
type group struct {
	gpu
	count int32
}

// baseline returns the current measures of a node, cached until the node or the demand changes.
// The node must be loaded, with nothing placed.
func (p *Placer) baseline(at int32) baseline {
	n, weights := &p.nodes[at], &p.policy.Weights
	if n.nowVersion != p.version[at] {
		n.now, n.nowVersion = baseline{}, p.version[at]
		if weights[Fragmentation] != 0 {
			n.now.fragments = p.target.fragments(&p.work, n.spec.CPU, n.spec.MemoryMiB)
		}
		if weights[Stranding] != 0 {
			n.now.stranded = p.target.stranded(p.work.free, n.spec.CPU)
		}
	}
	return n.now
}

// score weighs the measures of the place in p.work, except Room: that depends on other nodes,
// so it decides between nodes only. See losses.go.
func (p *Placer) score() int64 {
	var score int64
	for m, weight := range &p.policy.Weights {
		if weight != 0 && Measure(m) != Room {
			score += int64(weight) * p.measure(Measure(m))
		}
	}
	return score
}

// measure measures the place in p.work.
func (p *Placer) measure(m Measure) int64 {
	w, t := &p.work, p.target
	switch m {
	case Misfit:
		return w.misfit
	case Fragmentation:
		growth := t.fragments(w, w.cpu, w.mem) - w.before.fragments
		if p.policy.Buckets {
			return t.bucket(growth)
		}
		return growth
	case Stranding:
		return t.stranded(w.free, w.cpu) - w.before.stranded
	case Scarcity:
		return w.scarcity
	case Room:
		lost := p.lost()
		return p.losses.missed(&lost)
	case Remainder:
		return int64(w.remainder) << fraction
	case NodeLoad:
		return inLoad(int64(w.size-w.free)<<fraction, w.size)
	case Imbalance:
		return w.imbalance()
	case Fragments:
		return inLoad(t.fragments(w, w.cpu, w.mem), w.size)
	}
	return 0
}

// fragments returns the free GPU memory that future tasks cannot use, as a mean over the demand.
// For a class that does not fit on the node, all free memory is a fragment; for another one, the
// free memory of GPUs with too little for it.
func (t *target) fragments(w *assigner, cpu, mem int) int64 {
	w.group()
	w.sift(t.needs)
	var sum int64
	for i := range t.classes {
		c := &t.classes[i]
		if c.cpu > cpu { // and so are all that follow
			return sum + t.weightFrom[i]*int64(w.free)
		}
		lost := w.free
		if found := &w.sifted[c.need]; mem >= c.mem && found.fitting >= c.count {
			lost = found.slivers
		}
		sum += c.weight * int64(lost)
	}
	return sum
}

// group sorts the GPUs that are not full by their state.
func (w *assigner) group() {
	w.groups = w.groups[:0]
next:
	for _, g := range w.gpus {
		if g.free == 0 {
			continue
		}
		for i := range w.groups {
			if w.groups[i].gpu == g {
				w.groups[i].count++
				continue next
			}
		}
		w.groups = append(w.groups, group{gpu: g, count: 1})
	}
}

// sifted counts a node's GPUs by whether they fit a need.
type sifted struct {
	slivers int   // MiB free on those that do not
	fitting int32 // how many do
}

func (w *assigner) sift(needs [][]int32) {
	w.sifted = w.sifted[:0]
	for _, need := range needs {
		var s sifted
		for _, g := range w.groups {
			if g.free >= need[g.kind] {
				s.fitting += g.count
			} else {
				s.slivers += int(g.free * g.count)
			}
		}
		w.sifted = append(w.sifted, s)
	}
}

// stranded returns the free GPU memory beyond what the free CPU can serve, as a mean over the
// rates.
func (t *target) stranded(free, cpu int) int64 {
	var sum int64
	for _, mibPerCPU := range t.rates {
		sum += max(0, int64(free)<<fraction-int64(cpu)*mibPerCPU)
	}
	return sum / rateSteps
}

// bucket maps a growth of fragments to one of 100 steps, as the authors of fgd do: small growths
// differ, large ones are equally bad.
func (t *target) bucket(growth int64) int64 {
	gpus := float64(growth) / float64(t.gpuMiB<<fraction)
	return -int64(100 / (1 + math.Exp(gpus)))
}

// imbalance is the mean distance of the GPUs' free memory from its mean, as load.
func (w *assigner) imbalance() int64 {
	if len(w.gpus) == 0 {
		return 0
	}
	mean := w.free / len(w.gpus)
	distance := 0
	for _, g := range w.gpus {
		distance += max(int(g.free)-mean, mean-int(g.free))
	}
	return inLoad(int64(distance)<<fraction, w.size)
}

// inLoad is a measure in MiB as parts in a thousand of the size.
func inLoad(measure int64, size int) int64 { return measure * 1000 / int64(max(1, size)) }
