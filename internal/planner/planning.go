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

// planning is the work on one job.
type planning struct {
	cluster Cluster
	options Options
	job     *api.Job
	wanted  []*wanted
	placer  *placement.Placer
	used    []use     // by instances
	empty   *planning // see emptied
	limited bool      // the shortlist is as short as what Nomad looks at
}

// use is a node that has an instance of a group, or will get one.
type use struct{ node, group string }

// shares reports whether an instance of a group would share a node with another
// that wants a node for itself.
func (p *planning) shares(node string, group *api.TaskGroup) bool {
	ofJob, ofGroup := distinctHosts(p.job.Constraints), distinctHosts(group.Constraints)
	return (ofJob || ofGroup) && slices.ContainsFunc(p.used, func(u use) bool {
		return u.node == node && (ofJob || u.group == *group.Name)
	})
}

// wanted is one group that asks for GPU memory.
type wanted struct {
	spec   *api.TaskGroup
	asks   []ask
	limits []limit // of the asks, in their order
	judge  *judge
	live   []*structs.AllocListStub // instances that run and go on, or have done their work
	away   []*structs.AllocListStub // instances on disconnected nodes, in whose place others run
	kept   bool                     // with what they have
	was    Pin                      // that the job came with, if any

	own       []*api.Constraint // those of the group that are not the planner's
	listAt    int               // at which of them the planner's list of nodes was, -1 if it had none
	ownOnAsks []int             // how many constraints of each ask are the job's own
}

func newPlanning(job *api.Job, cluster Cluster, options Options) (*planning, error) {
	p, err := readPlanning(job, cluster, options)
	if err != nil {
		return nil, err
	}
	freed := map[string]bool{}
	for _, w := range p.wanted {
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

// readPlanning reads what the groups of a job want. It does not look at the nodes.
func readPlanning(job *api.Job, cluster Cluster, options Options) (*planning, error) {
	if options.Shortlist == 0 {
		options.Shortlist = DefaultShortlist
	}
	p := &planning{cluster: cluster, options: options, job: job}
	if limit := cluster.NodeLimit; limit > 0 && limit < options.Shortlist {
		p.options.Shortlist, p.limited = limit, true // of a longer list Nomad might not see the planned node
	}
	for _, group := range job.TaskGroups {
		w, err := p.read(group)
		if err != nil {
			return nil, err
		}
		if w != nil {
			p.wanted = append(p.wanted, w)
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

// emptied is the planning of the same job on nodes on which nothing runs, of
// which all are ready and all units are well: what does not fit there fits never.
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

// tightest takes the GPUs that are just large enough.
var tightest = placement.Policy{Weights: placement.Weights{placement.Remainder: -1}, Ties: placement.TiesByOrder}

// seed makes equal jobs go to equal places: what plan says is what run does.
func seed(job *api.Job) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(*job.Namespace + "/" + *job.ID)) // a hash takes everything
	return hash.Sum64()
}

// canaries is how many instances of a new version Nomad starts beside those that run,
// which it ends only once somebody has promoted them. 0: it starts none beside them.
func (w *wanted) canaries() int {
	update := w.spec.Update
	if w.kept || len(w.live) == 0 || update == nil || update.Canary == nil {
		return 0
	}
	return min(*update.Canary, *w.spec.Count)
}

// replaces reports whether Nomad gives new instances the units of those that run.
func (w *wanted) replaces() bool { return !w.kept && len(w.live) > 0 && w.canaries() == 0 }

// read finds out what a group wants, nil if no GPU memory.
func (p *planning) read(group *api.TaskGroup) (*wanted, error) {
	was := Pin(group.Meta[MetaPlanned])
	listAt := unpin(group)
	asks, err := findAsks(p.job, group, p.cluster.Profiles)
	if err != nil || len(asks) == 0 {
		return nil, err
	}
	if *group.Count < 0 {
		return nil, fmt.Errorf("group %q has a count of %d", *group.Name, *group.Count)
	}
	w := &wanted{spec: group, asks: asks, limits: make([]limit, len(asks)), judge: newJudge(p.job, group), was: was,
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

// isDone reports whether an allocation of a batch job did its work. Nomad starts
// it again if the job changes, so a job that is run again must not change.
func (p *planning) isDone(alloc *structs.AllocListStub) bool {
	old := p.cluster.Registered
	isBatch := *p.job.Type == api.JobTypeBatch || *p.job.Type == api.JobTypeSysbatch
	return isBatch && alloc.ClientStatus == structs.AllocClientStatusComplete &&
		old != nil && old.Version != nil && alloc.JobVersion == *old.Version
}

// isTemplate reports whether a job is started later, again and again.
func isTemplate(job *api.Job) bool { return job.IsPeriodic() || job.IsParameterized() }
