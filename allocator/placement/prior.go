// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

// The prior demand, in tasks: so many that ask for a whole GPU, and so many that
// ask for a part of one, spread over so many sizes.
const (
	priorWhole  = 2.0
	priorShares = 2.0
	priorSizes  = 8
)

// priorCPU is the CPU that goes with a GPU's memory in the prior demand, as a part
// of what the cluster has free for each GPU.
const priorCPU = 0.75

// Learn sets what tasks have asked for so far; the weights are numbers of tasks, as in
// History. A few tasks predict little, so a handful of tasks of all sizes is added, which
// soon hardly count. As SetDemand, it invalidates all scores, so do not call it for every
// task.
func (p *Placer) Learn(seen []Class) {
	p.SetDemand(seen)
	p.learned = true
}

// prior returns the expected demand of a cluster without a history.
func (p *Placer) prior() []Class {
	cpu, mib, gpus := 0, 0, 0
	for i := range p.nodes {
		cpu += p.nodes[i].spec.CPU
		mib += p.nodes[i].size
		gpus += len(p.nodes[i].gpus)
	}
	if mib == 0 {
		return nil
	}
	cpu, mib = int(priorCPU*float64(cpu)/float64(gpus)), mib/gpus
	prior := []Class{{Request: Request{CPU: cpu, Asks: []Ask{{Whole: true}}}, Weight: priorWhole}}
	for i := 1; i < priorSizes; i++ {
		prior = append(prior, Class{
			Request: Request{CPU: cpu * i / priorSizes, Asks: []Ask{{MiB: max(1, mib*i/priorSizes)}}},
			Weight:  priorShares / (priorSizes - 1),
		})
	}
	return prior
}
