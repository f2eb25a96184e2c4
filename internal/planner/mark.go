// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// mark records in the group's meta that it was planned, with which requested pin, and how
// many constraints of each device block the planner added.
func (w *groupPlan) mark(asked Pin) {
	w.setMeta(MetaPlanned, string(asked))
	var added []string
	limited := false
	for i, a := range w.asks {
		n := len(a.device.Constraints) - w.ownOnAsks[i]
		added, limited = append(added, strconv.Itoa(n)), limited || n > 0
	}
	if limited {
		w.setMeta(MetaLimits, strings.Join(added, ","))
	}
}

func (w *groupPlan) setMeta(key, value string) {
	if w.spec.Meta == nil {
		w.spec.Meta = map[string]string{}
	}
	w.spec.Meta[key] = value
}

// confine replaces the planner's list of nodes. Without nodes the group is not confined.
// But if the job's own constraints have such a list, the last of these is then written
// twice: the last list of all is always the planner's.
func (w *groupPlan) confine(nodes []string) {
	if len(nodes) > 0 {
		w.confineBy(constraint(targetNode, nodes))
		return
	}
	w.confineBy(nil)
	if own := nodeList(w.own); own >= 0 {
		w.confineBy(w.own[own])
	}
}

// confineBy inserts a list of nodes where the group had one, or at the end of its own
// constraints. Nomad may have added constraints after it when the job was registered.
func (w *groupPlan) confineBy(list *api.Constraint) {
	w.spec.Constraints = slices.Clone(w.own)
	switch {
	case list == nil:
	case w.listAt < 0:
		w.spec.Constraints = append(w.spec.Constraints, list)
	default:
		w.spec.Constraints = slices.Insert(w.spec.Constraints, w.listAt, list)
	}
}

// unpin removes from a group what pin wrote into it, and returns the position of the list
// of nodes among its constraints, -1 if it had none. Counts and the spelling of names stay.
func unpin(group *api.TaskGroup) (listAt int) {
	if _, planned := group.Meta[MetaPlanned]; !planned {
		return -1
	}
	added := strings.Split(group.Meta[MetaLimits], ",")
	delete(group.Meta, MetaLimits)
	if delete(group.Meta, MetaPlanned); len(group.Meta) == 0 {
		group.Meta = nil
	}
	if listAt = nodeList(group.Constraints); listAt >= 0 {
		group.Constraints = slices.Delete(slices.Clone(group.Constraints), listAt, listAt+1)
	}
	group.Affinities = withoutLast(group.Affinities, preferences(group.Affinities, targetNode))
	for i, d := range devices(group) {
		if i < len(added) {
			n, _ := strconv.Atoi(added[i]) // 0 without such meta
			d.device.Constraints = withoutLast(d.device.Constraints, n)
		}
		d.device.Affinities = withoutLast(d.device.Affinities, preferences(d.device.Affinities, targetGPU))
	}
	return listAt
}

// nodeList returns the position of the last list of nodes, -1 if there is none.
func nodeList(constraints []*api.Constraint) int {
	for i, c := range slices.Backward(constraints) {
		if isNodeList(c) {
			return i
		}
	}
	return -1
}

func constraint(target string, values []string) *api.Constraint {
	return &api.Constraint{LTarget: target, Operand: oneOf, RTarget: strings.Join(values, ",")}
}

// affinities prefers each value in proportion to how often it was planned. Nomad spreads
// the instances of a group, so they are placed in this proportion.
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

// preferences counts the affinities at the end of the list that a pin wrote: only the first
// of them has the full weight. A job's own affinities may otherwise look the same.
func preferences(all []*api.Affinity, target string) int {
	n := 0
	for _, a := range slices.Backward(all) {
		if a.LTarget != target || a.Operand != oneOf || a.Weight == nil || *a.Weight <= 0 {
			break
		}
		if n++; *a.Weight == pinWeight {
			return n
		}
	}
	return 0
}

func isNodeList(c *api.Constraint) bool { return c.LTarget == targetNode && c.Operand == oneOf }

// withoutLast drops n elements from the end.
func withoutLast[T any](all []T, n int) []T { return all[:len(all)-min(max(n, 0), len(all))] }

// withNode adds a node unless the list has it, or already has most nodes; 0 means no limit.
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

// distinct removes duplicates.
func distinct(values []string) []string {
	var once []string
	for _, value := range values {
		once = withNode(once, value, 0)
	}
	return once
}
