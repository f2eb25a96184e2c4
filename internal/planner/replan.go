// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// DefaultThreshold is the default number of usable nodes below which a shortlist is
// refreshed.
const DefaultThreshold = 8

// MayReplan returns why a registered job cannot be planned again, "" if it can. Only jobs
// that were planned before can, even if they fitted nowhere. Jobs that are not bound to
// nodes have no list to refresh: Nomad starts them unaided.
func MayReplan(job *api.Job) (whyNot string) {
	switch {
	case !slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return g.Meta[MetaPlanned] != "" }):
		return "it was never planned; submit it by `nomad-gpu-mem run` or through the webhook"
	case isTemplate(job):
		return templateNote
	case isEverywhere(job):
		return everyNote
	default:
		return ""
	}
}

// NeedsPins returns why a registered job should be planned again, nil if it need not:
// instances wait for a place (queued counts them by group), or fewer than threshold nodes
// of a shortlist are usable.
func NeedsPins(job *api.Job, cluster Cluster, queued map[string]int, threshold int) []string {
	ready := map[string]bool{}
	for _, n := range cluster.Nodes {
		ready[n.ID] = n.Ready()
	}
	var why []string
	for _, group := range job.TaskGroups {
		name := deref(group.Name)
		if len(devices(group)) == 0 {
			continue
		}
		if waiting := queued[name]; waiting > 0 {
			why = append(why, fmt.Sprintf("group %q: %s for a place", name, waits(waiting)))
		}
		if list := listOf(group); Pin(group.Meta[MetaPlanned]) == Shortlist && list != nil {
			usable := 0
			for _, node := range list {
				if ready[node] {
					usable++
				}
			}
			if usable < threshold && usable < len(cluster.Nodes) {
				why = append(why, fmt.Sprintf("group %q: %d of %d nodes of its list are usable, the threshold is %d", name, usable, len(list), threshold))
			}
		}
	}
	return why
}

func waits(instances int) string {
	if instances == 1 {
		return "1 instance waits"
	}
	return fmt.Sprintf("%d instances wait", instances)
}

// listOf returns the nodes that a group is confined to, nil if it is not.
func listOf(group *api.TaskGroup) []string {
	if at := nodeList(group.Constraints); at >= 0 {
		return strings.Split(group.Constraints[at].RTarget, ",")
	}
	return nil
}
