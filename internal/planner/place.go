package planner

import (
	"errors"
	"fmt"
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
	taken   map[string]bool // nodes with an instance, if no two may share one
}

// wanted is one group that asks for GPU memory.
type wanted struct {
	spec   *api.TaskGroup
	asks   []ask
	limits []limit // of the asks, in their order
	judge  *judge
	live   []*structs.AllocListStub // instances that run and go on, or have done their work
	kept   bool                     // with what they have
	was    Pin                      // that the job came with, if any
}

func newPlanning(job *api.Job, cluster Cluster, options Options) (*planning, error) {
	if options.Shortlist == 0 {
		options.Shortlist = DefaultShortlist
	}
	p := &planning{cluster: cluster, options: options, job: job, taken: map[string]bool{}}
	freed := map[string]bool{}
	for _, group := range job.TaskGroups {
		w, err := p.read(group)
		if err != nil {
			return nil, err
		}
		if w == nil {
			continue
		}
		for _, alloc := range w.live {
			freed[alloc.ID] = !w.kept
			if w.kept && lives(alloc) && distinctHosts(job, group) {
				p.taken[alloc.NodeID] = true
			}
		}
		p.wanted = append(p.wanted, w)
	}
	p.placer = placement.New(options.Policy, seed(job))
	p.placer.SetDemand(cluster.demand())
	view := newPicture(cluster, job, freed)
	for _, n := range cluster.Nodes {
		if node := view.node(n); len(node.GPUs) > 0 {
			p.placer.SetNode(node)
		}
	}
	return p, nil
}

// seed makes equal jobs go to equal places: what plan says is what run does.
func seed(job *api.Job) uint64 {
	var hash uint64 = 14695981039346656037 // FNV-1a
	for _, c := range []byte(*job.Namespace + "/" + *job.ID) {
		hash = (hash ^ uint64(c)) * 1099511628211
	}
	return hash
}

// read finds out what a group wants, nil if no GPU memory.
func (p *planning) read(group *api.TaskGroup) (*wanted, error) {
	was := Pin(group.Meta[MetaPlanned])
	unpin(group)
	asks, err := findAsks(p.job, group, p.cluster.Profiles)
	if err != nil || len(asks) == 0 {
		return nil, err
	}
	w := &wanted{spec: group, asks: asks, limits: make([]limit, len(asks)), judge: newJudge(p.job, group), was: was}
	for _, alloc := range p.cluster.Allocs {
		if alloc.Namespace == *p.job.Namespace && alloc.JobID == *p.job.ID && alloc.TaskGroup == *group.Name &&
			(lives(alloc) || p.isDone(alloc)) {
			w.live = append(w.live, alloc)
		}
	}
	if len(w.live) > 0 && registeredGroup(p.cluster.Registered, *group.Name) != nil {
		w.kept = w.keep(p.cluster, *group.Name)
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

// isEverywhere reports whether each node gets an instance.
func isEverywhere(job *api.Job) bool {
	return *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch
}

// plan finds places for the instances of a group and pins it to them.
func (p *planning) plan(w *wanted) (Group, error) {
	group := Group{Name: *w.spec.Name, Count: *w.spec.Count, Kept: w.kept, Places: []Place{}}
	if isEverywhere(p.job) {
		return group, p.everywhere(w, &group)
	}
	want := *w.spec.Count
	if w.kept {
		want -= len(w.live)
	}
	for missing := want; missing > 0; missing-- {
		place, err := p.place(w, len(group.Places) == 0)
		if errors.Is(err, placement.ErrNoRoom) {
			group.Short = append(group.Short, p.shortage(w, missing))
			break
		}
		if err != nil {
			return group, err
		}
		group.Places = append(group.Places, place)
	}
	if len(group.Places) == 0 && !w.kept {
		if err := p.settleUnplaced(w); err != nil {
			return group, err
		}
	}
	return group, p.pin(w, &group)
}

// place takes the best place for one more instance.
func (p *planning) place(w *wanted, first bool) (Place, error) {
	request := p.request(w)
	d, err := p.placer.Choose(request)
	if err != nil {
		return Place{}, err
	}
	if first && !w.kept {
		p.settle(w, d)
	}
	all, err := p.placer.Shortlist(p.request(w), 0)
	if err != nil {
		return Place{}, err
	}
	return p.take(w, d, len(all))
}

// take notes a decision in the picture and says what it is.
func (p *planning) take(w *wanted, d placement.Decision, of int) (Place, error) {
	if err := p.placer.Place(d); err != nil {
		return Place{}, err
	}
	if distinctHosts(p.job, w.spec) {
		p.taken[d.Node] = true
	}
	node, _ := p.placer.Node(d.Node)
	place := Place{Node: d.Node, NodeName: node.Name}
	place.Why = fmt.Sprintf("%s of %d nodes that have room, by %s", rank(of), of, p.options.Policy.Name)
	if of == 1 {
		place.Why = "the only node that has room"
	}
	for i, s := range d.Slices {
		gpu := p.gpu(d.Node, s.GPU)
		place.Slices = append(place.Slices, Slice{
			Task: w.asks[i].task.Name, GPU: s.GPU, Index: numberOf(gpu.Data.(*gpuData).device, "index"), Model: gpu.Model,
			Units: s.Units, UnitMiB: uint64(gpu.UnitMiB), MiB: uint64(s.Units * gpu.UnitMiB), Left: gpu.Free, Of: gpu.Units,
		})
	}
	return place, nil
}

func rank(of int) string {
	if of == 2 {
		return "better"
	}
	return "best"
}

// everywhere finds a place on every node that the group may go to. They bind
// nothing but the choice among a node's GPUs.
func (p *planning) everywhere(w *wanted, group *Group) error {
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
	done := map[string]bool{}
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
		place.Why = "every node that has room, and there the best GPU by " + p.options.Policy.Name
		group.Places = append(group.Places, place)
		done[d.Node] = true
	}
	group.Count = len(group.Places)
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
func (p *planning) withoutRoom(w *wanted, done map[string]bool) int {
	missing := 0
	for _, n := range p.cluster.Nodes {
		node, known := p.placer.Node(n.ID)
		if known && node.Out == "" && !done[n.ID] && w.judge.node(n) == "" {
			missing++
		}
	}
	return missing
}

// request is what one instance wants of placement.
func (p *planning) request(w *wanted) placement.Request {
	r := placement.Request{Fits: func(n *placement.Node) string {
		if p.taken[n.ID] {
			return "has an instance already, and the job wants distinct hosts"
		}
		return w.judge.node(n.Data.(*structs.Node))
	}}
	r.CPU, r.MemoryMiB = groupSize(w.spec)
	for i, a := range w.asks {
		ask := placement.Ask{
			Fits: func(g *placement.GPU) bool {
				return w.limits[i].allows(g) && w.judge.gpu(g.Data.(*gpuData).device, a.device)
			},
		}
		switch {
		case a.need.Whole:
			ask.Whole = true
		case a.need.MiB > 0 && w.limits[i].unitMiB == 0 && !w.kept:
			ask.MiB = int(a.need.MiB)
		default:
			ask.Units = w.count(i)
		}
		if a.apart {
			ask.Apart = a.task.Name
		}
		r.Asks = append(r.Asks, ask)
	}
	return r
}

// count is what the device block of an ask says.
func (w *wanted) count(i int) int { return int(min(*w.asks[i].device.Count, maxUnits)) }

func (w *wanted) setCount(i, units int) {
	count := uint64(units)
	w.asks[i].device.Count = &count
}

// tasksApart returns the asks of each task that has several to be kept apart.
func (w *wanted) tasksApart() [][]int {
	var all [][]int
	for i, a := range w.asks {
		switch {
		case !a.apart:
		case len(all) > 0 && w.asks[all[len(all)-1][0]].task == a.task:
			all[len(all)-1] = append(all[len(all)-1], i)
		default:
			all = append(all, []int{i})
		}
	}
	return slices.DeleteFunc(all, func(asks []int) bool { return len(asks) < 2 })
}

// settleUnplaced gives asks that fit nowhere now the count that they would have
// on the smallest GPU that the job allows: Nomad waits for room with that.
func (p *planning) settleUnplaced(w *wanted) error {
	for i, a := range w.asks {
		if !a.need.Whole && a.need.MiB == 0 {
			continue
		}
		smallest := p.smallest(w, a)
		switch {
		case smallest == nil:
			return fmt.Errorf("task %q asks for %s, and no node has a GPU that it allows", a.task.Name, a.need)
		case a.need.Whole:
			w.limits[i].units = smallest.Units
			w.setCount(i, smallest.Units)
		default:
			w.limits[i].unitMiB = smallest.UnitMiB
			w.setCount(i, (int(a.need.MiB)+smallest.UnitMiB-1)/smallest.UnitMiB)
		}
	}
	return nil
}

// smallest returns the GPU with the least memory that could hold the ask if it
// were empty, or the largest if none could; nil if the job allows none.
func (p *planning) smallest(w *wanted, a ask) *placement.GPU {
	var best *placement.GPU
	size := func(g *placement.GPU) int { return g.Units * g.UnitMiB }
	for _, n := range p.cluster.Nodes {
		node, _ := p.placer.Node(n.ID)
		for _, g := range node.GPUs {
			if g.UnitMiB == 0 || !w.judge.gpu(g.Data.(*gpuData).device, a.device) {
				continue
			}
			holds := size(&g) >= int(a.need.MiB)
			switch {
			case best == nil:
				best = &g
			case size(best) < int(a.need.MiB):
				if size(&g) > size(best) {
					best = &g
				}
			case holds && size(&g) < size(best):
				best = &g
			}
		}
	}
	return best
}

// gpu returns a GPU of the picture.
func (p *planning) gpu(nodeID, uuid string) *placement.GPU {
	node, _ := p.placer.Node(nodeID)
	for i := range node.GPUs {
		if node.GPUs[i].ID == uuid {
			return &node.GPUs[i]
		}
	}
	return nil
}

// groupSize is what an instance takes of a node's CPU, in MHz, and host memory,
// in MiB, by Nomad's rules for tasks that do not run at the same time.
func groupSize(group *api.TaskGroup) (cpu, memoryMiB int) {
	all := structs.AllocatedResources{
		Tasks:          map[string]*structs.AllocatedTaskResources{},
		TaskLifecycles: map[string]*structs.TaskLifecycleConfig{},
	}
	for _, task := range group.Tasks {
		r := &structs.AllocatedTaskResources{}
		if task.Resources.CPU != nil {
			r.Cpu.CpuShares = int64(*task.Resources.CPU)
		}
		if task.Resources.MemoryMB != nil {
			r.Memory.MemoryMB = int64(*task.Resources.MemoryMB)
		}
		all.Tasks[task.Name] = r
		if task.Lifecycle != nil {
			all.TaskLifecycles[task.Name] = &structs.TaskLifecycleConfig{Hook: task.Lifecycle.Hook, Sidecar: task.Lifecycle.Sidecar}
		}
	}
	flat := all.Comparable().Flattened
	return int(flat.Cpu.CpuShares), int(flat.Memory.MemoryMB)
}
