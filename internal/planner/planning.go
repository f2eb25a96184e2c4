// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
)

// planning is the state of planning one job.
type planning struct {
	cluster Cluster
	options Options
	job     *api.Job
	groups  []*groupPlan
	placer  *placement.Placer
	used    []use     // by instances
	empty   *planning // see emptied
	limited bool      // whether Nomad's node limit shortens the shortlist
}

// use is a node that has an instance of a group, or will get one.
type use struct{ node, group string }

// shares reports whether an instance of a group would share a node with another instance
// against distinct_hosts.
func (p *planning) shares(node string, group *api.TaskGroup) bool {
	ofJob, ofGroup := distinctHosts(p.job.Constraints), distinctHosts(group.Constraints)
	return (ofJob || ofGroup) && slices.ContainsFunc(p.used, func(u use) bool {
		return u.node == node && (ofJob || u.group == *group.Name)
	})
}

// groupPlan is the plan of one group that asks for GPU memory.
type groupPlan struct {
	spec   *api.TaskGroup
	asks   []ask
	limits []limit // of the asks, in their order
	judge  *judge
	live   []*structs.AllocListStub // instances that run and continue, or have completed
	away   []*structs.AllocListStub // instances on disconnected nodes, already replaced
	kept   bool                     // whether running instances keep their pins
	was    Pin                      // the pin of the submitted job, if any

	own       []*api.Constraint // the group's constraints that the planner does not own
	listAt    int               // position of the planner's list of nodes among them, -1 if none
	ownOnAsks []int             // how many constraints of each ask the planner does not own
}

func newPlanning(job *api.Job, cluster Cluster, options Options) (*planning, error) {
	p, err := readPlanning(job, cluster, options)
	if err != nil {
		return nil, err
	}
	freed := map[string]bool{}
	for _, w := range p.groups {
		for _, alloc := range w.live {
			freed[alloc.ID] = w.replaces()
			if w.kept && lives(alloc) {
				p.used = append(p.used, use{node: alloc.NodeID, group: alloc.TaskGroup})
			}
		}
	}
	p.placer = newPlacer(job, cluster, options, freed)
	p.placer.Learn(cluster.demand())
	return p, nil
}

// readPlanning reads what the groups of a job ask for, without regard to the nodes.
func readPlanning(job *api.Job, cluster Cluster, options Options) (*planning, error) {
	if options.Shortlist == 0 {
		options.Shortlist = DefaultShortlist
	}
	p := &planning{cluster: cluster, options: options, job: job}
	if limit := cluster.NodeLimit; limit > 0 && limit < options.Shortlist {
		p.options.Shortlist, p.limited = limit, true // of a longer list Nomad might not score the planned node
	}
	for _, group := range job.TaskGroups {
		w, err := p.read(group)
		if err != nil {
			return nil, err
		}
		if w != nil {
			p.groups = append(p.groups, w)
		}
	}
	return p, nil
}

// newPlacer returns a placer of the nodes that have GPUs. The units of freed allocations
// count as free.
func newPlacer(job *api.Job, cluster Cluster, options Options, freed map[string]bool) *placement.Placer {
	placer := placement.New(options.Policy, seed(job))
	view := newPicture(cluster, job, freed)
	for _, n := range cluster.Nodes {
		if node := view.node(n); len(node.GPUs) > 0 {
			placer.SetNode(node)
		}
	}
	return placer
}

// emptied returns the planning of the same job on empty nodes, all ready and with all units
// healthy: a group that does not fit there never fits.
func (p *planning) emptied() *planning {
	if p.empty != nil {
		return p.empty
	}
	p.empty = &planning{cluster: p.cluster, options: p.options, job: p.job, placer: placement.New(tightest, seed(p.job))}
	view := newPicture(Cluster{}, p.job, nil)
	for _, n := range p.cluster.Nodes {
		node := view.node(n)
		node.Out = ""
		for i := range node.GPUs {
			node.GPUs[i].Free = node.GPUs[i].Units
		}
		if len(node.GPUs) > 0 {
			p.empty.placer.SetNode(node)
		}
	}
	return p.empty
}

// tightest chooses the GPUs that are just large enough.
var tightest = placement.Policy{Weights: placement.Weights{placement.Remainder: -1}, Ties: placement.TiesByOrder}

// seed makes plans deterministic: `run` places a job where `plan` said.
func seed(job *api.Job) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(*job.Namespace + "/" + *job.ID)) // a hash never fails
	return hash.Sum64()
}

// canaries returns how many instances of a new version Nomad starts beside the running
// ones, which it stops only once the operator has promoted the canaries.
func (w *groupPlan) canaries() int {
	update := w.spec.Update
	if w.kept || len(w.live) == 0 || update == nil || update.Canary == nil {
		return 0
	}
	return min(*update.Canary, *w.spec.Count)
}

// replaces reports whether new instances get the units of the running ones.
func (w *groupPlan) replaces() bool { return !w.kept && len(w.live) > 0 && w.canaries() == 0 }

// read returns the plan of a group, nil if it asks for no GPU memory.
func (p *planning) read(group *api.TaskGroup) (*groupPlan, error) {
	was := Pin(group.Meta[MetaPlanned])
	listAt := unpin(group)
	asks, err := findAsks(p.job, group, p.cluster.Profiles)
	if err != nil || len(asks) == 0 {
		return nil, err
	}
	if *group.Count < 0 {
		return nil, fmt.Errorf("group %q: invalid count %d", *group.Name, *group.Count)
	}
	w := &groupPlan{spec: group, asks: asks, limits: make([]limit, len(asks)), judge: newJudge(p.job, group), was: was,
		own: group.Constraints, listAt: listAt}
	for _, a := range asks {
		w.ownOnAsks = append(w.ownOnAsks, len(a.device.Constraints))
	}
	for _, alloc := range p.cluster.Allocs {
		if alloc.Namespace != *p.job.Namespace || alloc.JobID != *p.job.ID || alloc.TaskGroup != *group.Name {
			continue
		}
		switch {
		case p.cluster.isReplaced(alloc):
			w.away = append(w.away, alloc)
		case lives(alloc) || p.isDone(alloc):
			w.live = append(w.live, alloc)
		}
	}
	if len(w.live) > 0 && registeredGroup(p.cluster.Registered, *group.Name) != nil {
		w.kept = w.keep(p.cluster, *group.Name, p.options.Replan)
	}
	if !w.kept {
		w.respell()
	}
	return w, nil
}

// isDone reports whether an allocation of a batch job has completed. Nomad starts it again
// if the job changes, so planning the job again must not change it.
func (p *planning) isDone(alloc *structs.AllocListStub) bool {
	old := p.cluster.Registered
	isBatch := *p.job.Type == api.JobTypeBatch || *p.job.Type == api.JobTypeSysbatch
	return isBatch && alloc.ClientStatus == structs.AllocClientStatusComplete &&
		old != nil && old.Version != nil && alloc.JobVersion == *old.Version
}

// isTemplate reports whether Nomad starts the job later, as child jobs.
func isTemplate(job *api.Job) bool { return job.IsPeriodic() || job.IsParameterized() }
