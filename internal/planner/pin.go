package planner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Pin is how firmly a group is bound to the places that were planned for it.
type Pin string

const (
	// Soft writes affinities only. Nomad looks at about a hundred nodes, so in
	// a larger cluster it often does not see the planned one.
	Soft Pin = "soft"

	// Shortlist confines the group to the best nodes and prefers the planned
	// ones. Nomad sees all of a list, and takes the next if a node is lost.
	Shortlist Pin = "shortlist"

	// Hard confines the group to the planned nodes and GPUs. It waits if one of
	// them is lost, until it is planned again.
	Hard Pin = "hard"
)

// Pins are all there are, the default first.
var Pins = []Pin{Shortlist, Soft, Hard}

// ParsePin returns the pin of that name.
func ParsePin(name string) (Pin, error) {
	if slices.Contains(Pins, Pin(name)) {
		return Pin(name), nil
	}
	return "", fmt.Errorf("there is no pin %q: choose one of %s, %s, %s", name, Shortlist, Soft, Hard)
}

const (
	templateNote = "is started later: Nomad finds a place then, and nothing is reserved"
	everyNote    = "runs on every node: bound to no node, prefers the planned GPUs"
	waitNote     = "has instances that fit nowhere: bound to no node, so that Nomad starts them where room comes up"
)

// pinWeight is as much as Nomad allows. A job's own affinities and spreads count
// beside it, so they can still draw a task to another node of the list.
const pinWeight = 100

// pin writes the plan of a group into the job.
func (p *planning) pin(w *wanted, group *Group) error {
	if w.kept {
		return p.repin(w, group)
	}
	asked := p.askedPin(w)
	pin := p.choosePin(group, asked)
	defer w.mark(asked)
	for i, a := range w.asks {
		a.device.Constraints = append(a.device.Constraints, w.limits[i].constraints()...)
	}
	if pin == "" || len(group.Places) == 0 {
		return nil
	}
	group.Pin = pin
	if pin != Soft {
		group.Nodes = distinct(placesOn(group.Places))
	}
	if pin == Shortlist {
		others, err := p.placer.Shortlist(p.request(w), p.options.Shortlist)
		if err != nil {
			return err
		}
		for _, d := range others {
			group.Nodes = withNode(group.Nodes, d.Node, p.options.Shortlist)
		}
	}
	if pin != Hard && !isEverywhere(p.job) {
		w.spec.Affinities = append(w.spec.Affinities, affinities(targetNode, placesOn(group.Places))...)
	}
	w.confine(group.Nodes)
	for i, a := range w.asks {
		gpus := gpusOf(group.Places, i)
		if pin == Hard {
			a.device.Constraints = append(a.device.Constraints, constraint(targetGPU, distinct(gpus)))
		} else {
			a.device.Affinities = append(a.device.Affinities, affinities(targetGPU, gpus)...)
		}
	}
	return nil
}

// askedPin returns the pin that the group should have as soon as it can.
func (p *planning) askedPin(w *wanted) Pin {
	switch {
	case slices.ContainsFunc(w.limits, func(l limit) bool { return l.gpus != nil }):
		return Hard // its asks are bound to GPUs, so other nodes are of no use
	case p.options.Replan && slices.Contains(Pins, w.was):
		return w.was
	default:
		return p.options.Pin
	}
}

// choosePin returns the pin that the group can have now, "" for none, and notes
// why it is not the one that was asked for.
func (p *planning) choosePin(group *Group, asked Pin) Pin {
	switch {
	case isTemplate(p.job):
		group.Note = templateNote
		for _, short := range group.Short { // which is not said of the time when it starts
			group.Note += "; now it would fit nowhere: " + strings.Join(short.Why, "; ")
		}
		group.Short = nil
		return ""
	case isEverywhere(p.job):
		group.Note = everyNote
		return Soft
	case len(group.Short) > 0:
		group.Note = waitNote
		return Soft
	default:
		return asked
	}
}

// repin changes only the list of nodes of a group that runs: whatever else
// changed would restart it.
func (p *planning) repin(w *wanted, group *Group) error {
	old := listOf(w.spec)
	group.Pin = w.bornPin(old)
	switch {
	case isEverywhere(p.job) && group.Pin != "":
		group.Note = everyNote
		return nil
	case len(group.Short) > 0 && group.Pin != "":
		w.confine(nil)
		group.Note = waitNote
		return nil
	case old == nil:
		return nil // it is not confined
	}
	var list []string
	for _, alloc := range w.live {
		list = withNode(list, alloc.NodeID, 0)
	}
	for _, node := range placesOn(group.Places) {
		list = withNode(list, node, 0)
	}
	switch {
	case group.Pin == Shortlist && p.options.Replan:
		best, err := p.placer.Shortlist(p.request(w), p.options.Shortlist)
		if err != nil {
			return err
		}
		for _, d := range best {
			list = withNode(list, d.Node, p.options.Shortlist)
		}
	case len(group.Places) == 0:
		list = old
	default:
		for _, node := range old {
			list = withNode(list, node, 0)
		}
	}
	group.Nodes = list
	w.confine(list)
	return nil
}

// bornPin returns the pin that a group which runs bears: the one that was asked
// for, unless it was planned while some of it fitted nowhere.
func (w *wanted) bornPin(list []string) Pin {
	pin := Pin(w.spec.Meta[MetaPlanned])
	if pin != "" && list == nil {
		return Soft
	}
	return pin
}

// mark notes in the group's meta that it was planned, which pin was asked for,
// and how many constraints of its device blocks are the planner's.
func (w *wanted) mark(asked Pin) {
	w.setMeta(MetaPlanned, string(asked))
	var added []string
	limited := false
	for i, a := range w.asks {
		n := len(a.device.Constraints) - w.own[i]
		added, limited = append(added, strconv.Itoa(n)), limited || n > 0
	}
	if limited {
		w.setMeta(MetaLimits, strings.Join(added, ","))
	}
}

func (w *wanted) setMeta(key, value string) {
	if w.spec.Meta == nil {
		w.spec.Meta = map[string]string{}
	}
	w.spec.Meta[key] = value
}

// confine replaces the list of nodes. Without nodes the group is not confined.
func (w *wanted) confine(nodes []string) {
	w.spec.Constraints = withoutLast(w.spec.Constraints, func(c *api.Constraint) bool { return isOneOf(c, targetNode) })
	if len(nodes) > 0 {
		w.spec.Constraints = append(w.spec.Constraints, constraint(targetNode, nodes))
	}
}

// unpin takes out of a group what pin has written into it. Counts and the
// spelling of names stay.
func unpin(group *api.TaskGroup) {
	if _, planned := group.Meta[MetaPlanned]; !planned {
		return
	}
	added := strings.Split(group.Meta[MetaLimits], ",")
	delete(group.Meta, MetaLimits)
	if delete(group.Meta, MetaPlanned); len(group.Meta) == 0 {
		group.Meta = nil
	}
	isNodes := func(c *api.Constraint) bool { return isOneOf(c, targetNode) }
	group.Constraints = withoutLast(group.Constraints, isNodes)
	group.Affinities = group.Affinities[:len(group.Affinities)-preferences(group.Affinities, targetNode)]
	for i, d := range devices(group) {
		if i < len(added) {
			n, _ := strconv.Atoi(added[i]) // 0 if there is no such meta
			d.device.Constraints = d.device.Constraints[:len(d.device.Constraints)-min(max(n, 0), len(d.device.Constraints))]
		}
		d.device.Affinities = d.device.Affinities[:len(d.device.Affinities)-preferences(d.device.Affinities, targetGPU)]
	}
}

func constraint(target string, values []string) *api.Constraint {
	return &api.Constraint{LTarget: target, Operand: oneOf, RTarget: strings.Join(values, ",")}
}

// affinities prefer each value as much as it was planned often. Nomad spreads
// the instances of a group by itself, so that they end up in this proportion.
func affinities(target string, planned []string) []*api.Affinity {
	times := map[string]int{}
	for _, value := range planned {
		times[value]++
	}
	byTimes := map[int][]string{}
	for _, value := range distinct(planned) {
		byTimes[times[value]] = append(byTimes[times[value]], value)
	}
	var all []*api.Affinity
	counts := slices.Sorted(maps.Keys(byTimes))
	for _, n := range slices.Backward(counts) {
		weight := max(1, pinWeight*n/counts[len(counts)-1])
		all = append(all, api.NewAffinity(target, oneOf, strings.Join(byTimes[n], ","), int8(weight)))
	}
	return all
}

// preferences counts the affinities at the end that a pin may have written.
func preferences(all []*api.Affinity, target string) int {
	n := 0
	for _, a := range slices.Backward(all) {
		if a.LTarget != target || a.Operand != oneOf || a.Weight == nil || *a.Weight <= 0 {
			break
		}
		n++
	}
	return n
}

func isOneOf(c *api.Constraint, target string) bool { return c.LTarget == target && c.Operand == oneOf }

// withoutLast drops the last element if it is one of those.
func withoutLast[T any](all []T, is func(T) bool) []T {
	if n := len(all); n > 0 && is(all[n-1]) {
		return all[:n-1]
	}
	return all
}

// withNode adds a node that is not there yet, unless there are so many already.
func withNode(list []string, node string, most int) []string {
	if slices.Contains(list, node) || most > 0 && len(list) >= most {
		return list
	}
	return append(list, node)
}

// placesOn returns the node of each place.
func placesOn(places []Place) []string {
	var nodes []string
	for _, place := range places {
		nodes = append(nodes, place.Node)
	}
	return nodes
}

// gpusOf returns the GPU of an ask in each place.
func gpusOf(places []Place, ask int) []string {
	var gpus []string
	for _, place := range places {
		gpus = append(gpus, place.Slices[ask].GPU)
	}
	return gpus
}

// distinct leaves out what came before.
func distinct(values []string) []string {
	var once []string
	for _, value := range values {
		once = withNode(once, value, 0)
	}
	return once
}
