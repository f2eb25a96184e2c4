// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/allocator/profile"
	"nomad-gpu-mem/internal/words"
)

// Shortage is why instances of a group fit nowhere, and by how much.
type Shortage struct {
	Instances int      `json:"instances"`
	Never     bool     `json:"never,omitempty"` // no node could hold one even if nothing else ran
	Why       []string `json:"why"`
}

// shortage checks every node. It counts unusable nodes by reason, and of the nodes with GPUs
// that are too full it names the nearest miss.
func (p *planning) shortage(w *groupPlan, instances int) Shortage {
	request := p.request(w)
	empty := p.emptied()
	_, err := empty.placer.Choose(empty.request(w))
	reasons := map[string]int{}
	nearest := map[int]miss{}
	for _, n := range p.cluster.Nodes {
		node, known := p.placer.Node(n.ID)
		if !known {
			continue
		}
		if reason := p.refusal(w, request, node); reason != "" {
			reasons[reason]++
			continue
		}
		for i, a := range w.asks {
			p.nearest(w, i, a, node, nearest)
		}
	}
	s := Shortage{Instances: instances, Never: errors.Is(err, placement.ErrNoRoom), Why: []string{}}
	for _, i := range slices.Sorted(maps.Keys(nearest)) {
		if why := nearest[i].String(); !slices.Contains(s.Why, why) { // equal asks of a task have the same reason
			s.Why = append(s.Why, why)
		}
	}
	for _, reason := range byCount(reasons) {
		s.Why = append(s.Why, fmt.Sprintf("%s: %s", words.Count(reasons[reason], "node"), reason))
	}
	if len(s.Why) == 0 {
		s.Why = append(s.Why, "no node offers GPU memory")
	}
	return s
}

// refusal returns why a node cannot run an instance at all, "" if only its GPUs are too
// full.
func (p *planning) refusal(w *groupPlan, r placement.Request, node placement.Node) string {
	switch reason := r.Fits(&node); {
	case node.Out != "":
		return node.Out
	case reason != "":
		return reason
	case node.CPU < r.CPU:
		return fmt.Sprintf("less than %d MHz of CPU free", r.CPU)
	case node.MemoryMiB < r.MemoryMiB:
		return fmt.Sprintf("less than %d MiB of memory free", r.MemoryMiB)
	}
	for _, a := range w.asks {
		allowed := slices.ContainsFunc(node.Data.(*structs.Node).NodeResources.Devices, func(d *structs.NodeDeviceResource) bool {
			return w.judge.gpu(d, a.device)
		})
		if !allowed {
			return fmt.Sprintf("no GPU that task %q allows%s", a.task.Name, largest(node, a))
		}
	}
	return ""
}

// largest names the largest GPU of a node if an ask constrains the memory: cards have a
// little less than their nominal size.
func largest(node placement.Node, a ask) string {
	wantsMemory := slices.ContainsFunc(a.device.Constraints, func(c *api.Constraint) bool { return c.LTarget == "${device.attr.memory}" })
	most := 0
	for _, d := range node.Data.(*structs.Node).NodeResources.Devices {
		if isOurs(d.Vendor + "/" + d.Type) {
			most = max(most, numberOf(d, "memory"))
		}
	}
	if !wantsMemory || most == 0 {
		return ""
	}
	return fmt.Sprintf(" (the largest has %d MiB of memory)", most)
}

// miss is by how much an ask did not fit on a GPU.
type miss struct {
	ask       ask
	gpu, node string
	free, of  int // units
	need      int // units
	unitMiB   int
}

// nearer reports whether a miss is by less than another. A GPU that could hold
// the ask if it were empty is nearer than one that is too small.
func (m miss) nearer(other miss) bool {
	if m.tooSmall() != other.tooSmall() {
		return other.tooSmall()
	}
	return (m.free-m.need)*m.unitMiB > (other.free-other.need)*other.unitMiB
}

func (m miss) tooSmall() bool { return m.need > m.of }

func (p *planning) nearest(w *groupPlan, i int, a ask, node placement.Node, found map[int]miss) {
	for _, g := range node.GPUs {
		if g.Out != "" || !w.limits[i].allows(&g) || !w.judge.gpu(g.Data.(*gpuData).device, a.device) {
			continue
		}
		m := miss{ask: a, gpu: g.ID, node: node.Name, free: g.Free, of: g.Units, unitMiB: g.UnitMiB, need: w.unitsOn(i, g)}
		if best, seen := found[i]; !seen || m.nearer(best) {
			found[i] = m
		}
	}
}

// unitsOn returns how many units of a GPU an ask needs.
func (w *groupPlan) unitsOn(i int, g placement.GPU) int {
	switch a := w.asks[i]; {
	case a.need.Whole:
		return g.Units
	case a.need.MiB > 0:
		return profile.Units(a.need.MiB, uint64(g.UnitMiB))
	default:
		return w.count(i)
	}
}

func (m miss) String() string {
	switch {
	case m.tooSmall():
		return fmt.Sprintf("task %q needs %s; the largest GPU that it allows, %s on %s, has %d",
			m.ask.task.Name, words.Count(m.need, "unit"), m.gpu, m.node, m.of)
	case m.free >= m.need && m.ask.apart:
		return fmt.Sprintf("task %q needs %s; GPU %s on %s has %d of %d free, but not beside the group's other asks; "+
			`the asks of a task use different GPUs unless meta %s = "false"`,
			m.ask.task.Name, words.Count(m.need, "unit"), m.gpu, m.node, m.free, m.of, MetaApart)
	case m.free >= m.need:
		return fmt.Sprintf("task %q needs %s; GPU %s on %s has %d of %d free, but not beside the group's other asks",
			m.ask.task.Name, words.Count(m.need, "unit"), m.gpu, m.node, m.free, m.of)
	}
	return fmt.Sprintf("task %q needs %s; the nearest GPU, %s on %s, has %d of %d free: %s short",
		m.ask.task.Name, words.Count(m.need, "unit"), m.gpu, m.node, m.free, m.of, words.Count(m.need-m.free, "unit"))
}

// byCount sorts reasons, the most frequent first.
func byCount(reasons map[string]int) []string {
	return slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
}
