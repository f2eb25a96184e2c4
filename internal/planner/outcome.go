// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/nomad/structs"
)

// Outcome is what Nomad did with one instance.
type Outcome struct {
	Group     string   `json:"group"`
	Alloc     string   `json:"alloc,omitempty"` // "" if it was not started
	Node      string   `json:"node,omitempty"`
	NodeName  string   `json:"node_name,omitempty"`
	GPUs      []string `json:"gpus,omitempty"` // UUIDs, sorted; nil for a group that asks for none
	AsPlanned bool     `json:"as_planned"`
}

// Compare compares what Nomad started with a plan. Instances that replace others may start
// later. Instances of groups that ask for no GPU memory are as planned on any node.
func Compare(plan *Plan, started []*structs.AllocListStub) []Outcome {
	all := unplanned(plan, started)
	for _, group := range plan.Groups {
		open := slices.Clone(group.Places)
		var elsewhere []*structs.AllocListStub
		for _, alloc := range started {
			if alloc.TaskGroup != group.Name {
				continue
			}
			at := slices.IndexFunc(open, func(place Place) bool {
				return place.Node == alloc.NodeID && slices.Equal(signature(place), bookings(alloc))
			})
			if at < 0 {
				elsewhere = append(elsewhere, alloc)
				continue
			}
			open = slices.Delete(open, at, at+1)
			all = append(all, outcomeOf(alloc, true))
		}
		for _, alloc := range elsewhere {
			all = append(all, outcomeOf(alloc, group.keepsTo(alloc.NodeID, len(open) > 0)))
		}
		for range len(open) - len(elsewhere) - group.Replaces {
			all = append(all, Outcome{Group: group.Name})
		}
	}
	return all
}

// keepsTo reports whether an instance of a kept group may start on a node. Such a group
// keeps the preferences of an earlier plan. By these Nomad chooses among the nodes of the
// pin, both for a new instance and for a replacement that another change of the task causes.
// Without a list of nodes only a replacement may start anywhere.
func (g Group) keepsTo(node string, isNew bool) bool {
	if len(g.Nodes) == 0 {
		return g.Kept && !isNew
	}
	return g.Kept && slices.Contains(g.Nodes, node)
}

func outcomeOf(alloc *structs.AllocListStub, asPlanned bool) Outcome {
	return Outcome{
		Group: alloc.TaskGroup, Alloc: alloc.ID, Node: alloc.NodeID, NodeName: alloc.NodeName,
		GPUs: gpusIn(alloc), AsPlanned: asPlanned,
	}
}

// unplanned returns the instances of groups that the plan does not have.
func unplanned(plan *Plan, started []*structs.AllocListStub) []Outcome {
	var all []Outcome
	for _, alloc := range started {
		if !slices.ContainsFunc(plan.Groups, func(g Group) bool { return g.Name == alloc.TaskGroup }) {
			all = append(all, outcomeOf(alloc, true))
		}
	}
	return all
}

// signature returns a comparable form of a place's slices.
func signature(place Place) []string {
	var all []string
	for _, s := range place.Slices {
		all = append(all, s.Task+" "+s.GPU)
	}
	slices.Sort(all)
	return all
}

func bookings(alloc *structs.AllocListStub) []string {
	var all []string
	for name, task := range alloc.AllocatedResources.Tasks {
		for _, d := range task.Devices {
			if isOurs(d.Vendor + "/" + d.Type) {
				all = append(all, name+" "+d.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func gpusIn(alloc *structs.AllocListStub) []string {
	var gpus []string
	for _, booking := range bookings(alloc) {
		gpus = append(gpus, booking[strings.LastIndexByte(booking, ' ')+1:])
	}
	slices.Sort(gpus)
	return slices.Compact(gpus)
}
