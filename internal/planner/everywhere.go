// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import "github.com/hashicorp/nomad/api"

// isEverywhere reports whether each node gets an instance.
func isEverywhere(job *api.Job) bool {
	return *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch
}

// everywhere finds a place on every node that the group allows. These places only steer the
// choice among a node's GPUs.
func (p *planning) everywhere(w *groupPlan, group *Group) error {
	decisions, err := p.placer.Shortlist(p.request(w), 0)
	if err != nil {
		return err
	}
	if len(decisions) > 0 && !w.kept {
		p.settle(w, decisions[0])
		if decisions, err = p.placer.Shortlist(p.request(w), 0); err != nil {
			return err
		}
	}
	done := map[string]bool{} // nodes that have an instance, or get one
	group.Count = 0
	for _, alloc := range w.live {
		done[alloc.NodeID] = w.kept
	}
	for _, d := range decisions {
		if done[d.Node] {
			continue
		}
		place, err := p.take(w, d, 1)
		if err != nil {
			return err
		}
		place.Why = "every node with enough free units, and there the best GPU by " + p.options.Policy.Name
		group.Places = append(group.Places, place)
		done[d.Node] = true
	}
	for _, has := range done {
		if has {
			group.Count++
		}
	}
	if missing := p.withoutRoom(w, done); missing > 0 {
		group.Short = append(group.Short, p.shortage(w, missing))
	}
	if len(decisions) == 0 && !w.kept {
		if err := p.settleUnplaced(w); err != nil {
			return err
		}
	}
	return p.pin(w, group)
}

// withoutRoom counts the nodes that should get an instance and do not.
func (p *planning) withoutRoom(w *groupPlan, done map[string]bool) int {
	missing := 0
	for _, n := range p.cluster.Nodes {
		node, known := p.placer.Node(n.ID)
		if known && node.Out == "" && !done[n.ID] && w.judge.node(n) == "" {
			missing++
		}
	}
	return missing
}
