// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

// supply is what the cluster has, in use or not.
type supply struct {
	kinds []kind
	node  int   // GPUs of the largest node
	gpus  []int // of each kind
}

// supply counts the cluster's GPUs.
func (p *Placer) supply() supply {
	s := supply{kinds: p.kinds, gpus: make([]int, len(p.kinds))}
	for i := range p.nodes {
		s.node = max(s.node, len(p.nodes[i].gpus))
		for _, g := range p.nodes[i].gpus {
			s.gpus[g.kind]++
		}
	}
	return s
}

func (s supply) total() int {
	total := 0
	for _, count := range s.gpus {
		total += count
	}
	return total
}

func (s supply) gpuMiB() int64 {
	return int64(s.mean(func(k kind) int { return k.sizeMiB }))
}

// mean is over all GPUs, 1 at least.
func (s supply) mean(of func(kind) int) float64 {
	var sum float64
	for i, k := range s.kinds {
		sum += float64(s.gpus[i] * of(k))
	}
	return max(1, sum/float64(max(1, s.total())))
}

// gpusFor is the size of a request in GPUs of mean size.
func (s supply) gpusFor(r Request) float64 {
	gpu, unit := float64(s.gpuMiB()), s.mean(func(k kind) int { return k.unitMiB })
	var size float64
	for _, a := range r.Asks {
		switch {
		case a.Whole:
			size++
		case a.MiB > 0:
			size += float64(a.MiB) / gpu
		default:
			size += float64(a.Units) * unit / gpu
		}
	}
	return size
}
