// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"testing"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// A plan on 1,200 nodes of 8 GPUs.
func BenchmarkPlan(b *testing.B) {
	g := a10()
	cluster := planner.Cluster{Nodes: nomadtest.Nodes(1200, g, g, g, g, g, g, g, g)}
	for _, name := range []string{"least-waste", "fgd", "best-fit"} {
		b.Run(name, func(b *testing.B) {
			options := planner.Options{Policy: policy(name), Pin: planner.Shortlist}
			for b.Loop() {
				if _, err := planner.PlanJob(newJob("web", 3), cluster, options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
