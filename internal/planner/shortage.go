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

// Shortage says why instances of a group fit nowhere, and by how much.
type Shortage struct {
	Instances int      `json:"instances"`
	Never     bool     `json:"never,omitempty"` // no node could hold one even if nothing else ran
	Why       []string `json:"why"`
}

// shortage looks at every node. Nodes that are out are counted by reason; of
// those with a GPU that is too full, the nearest miss is named.
func (p *planning) shortage(w *wanted, instances int) Shortage {
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
		if why := nearest[i].String(); !slices.Contains(s.Why, why) { // equal asks of a task have the same
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

// refusal says why a node cannot take an instance at all, "" if only its GPUs
// are too full.
func (p *planning) refusal(w *wanted, r placement.Request, node placement.Node) string {
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

// largest says how much memory there is where an ask wants more: cards are sold by a size
// that they do not quite have.
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

// miss is how near an ask came to a place.
type miss struct {
	ask       ask
	gpu, node string
	free, of  int // units
	wanted    int
	unitMiB   int
}

// nearer reports whether a miss is by less than another. A GPU that could hold
// the ask if it were empty is nearer than one that is too small.
func (m miss) nearer(other miss) bool {
	if m.tooSmall() != other.tooSmall() {
		return other.tooSmall()
	}
	return (m.free-m.wanted)*m.unitMiB > (other.free-other.wanted)*other.unitMiB
}

func (m miss) tooSmall() bool { return m.wanted > m.of }

func (p *planning) nearest(w *wanted, i int, a ask, node placement.Node, found map[int]miss) {
	for _, g := range node.GPUs {
		if g.Out != "" || !w.limits[i].allows(&g) || !w.judge.gpu(g.Data.(*gpuData).device, a.device) {
			continue
		}
		m := miss{ask: a, gpu: g.ID, node: node.Name, free: g.Free, of: g.Units, unitMiB: g.UnitMiB, wanted: w.unitsOn(i, g)}
		if best, seen := found[i]; !seen || m.nearer(best) {
			found[i] = m
		}
	}
}

// unitsOn is how many units of a GPU an ask wants.
func (w *wanted) unitsOn(i int, g placement.GPU) int {
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
		return fmt.Sprintf("task %q: %s wanted, and the largest GPU that it allows, %s on %s, has %d",
			m.ask.task.Name, areUnits(m.wanted), m.gpu, m.node, m.of)
	case m.free >= m.wanted && m.ask.apart:
		return fmt.Sprintf("task %q: GPU %s on %s has %d of %d units free and %d are wanted, but not beside the group's other asks; "+
			`those of one task go to different GPUs unless meta %s = "false"`,
			m.ask.task.Name, m.gpu, m.node, m.free, m.of, m.wanted, MetaApart)
	case m.free >= m.wanted:
		return fmt.Sprintf("task %q: GPU %s on %s has %d of %d units free and %d are wanted, but not beside the group's other asks",
			m.ask.task.Name, m.gpu, m.node, m.free, m.of, m.wanted)
	}
	return fmt.Sprintf("task %q: %s short; the nearest is GPU %s on %s, with %d of %d units free where %d are wanted",
		m.ask.task.Name, words.Count(m.wanted-m.free, "unit"), m.gpu, m.node, m.free, m.of, m.wanted)
}

func areUnits(n int) string {
	if n == 1 {
		return "1 unit is"
	}
	return fmt.Sprintf("%d units are", n)
}

// byCount sorts reasons, the most frequent first.
func byCount(reasons map[string]int) []string {
	return slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
}
