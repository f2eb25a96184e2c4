// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

// Nomad replaces an instance on a disconnected node, and keeps it for the time
// when the node reconnects. It does not count as an instance, its units stay taken,
// and its node stays in the list, since it may keep running there.
func TestDisconnectedInstance(t *testing.T) {
	t.Parallel()
	nomad := nomadtest.New(t, nomadtest.Nodes(4, a10())...)
	job := newJob("web", 10, count(2), func(job *api.Job) { // as JSON: newer versions have another field
		must.NoError(t, json.Unmarshal([]byte(`{"MaxClientDisconnect": 3600000000000}`), job.TaskGroups[0]))
	})
	cluster := func() planner.Cluster {
		return planner.Cluster{
			Nodes: nomad.Nodes(), Allocs: nomad.Allocs(), Registered: nomadtest.Convert[*api.Job](t, nomad.Job("web")),
		}
	}
	first := plan(t, job, planner.Cluster{Nodes: nomad.Nodes()}, planner.Options{Policy: policy("spread"), Pin: planner.Shortlist, Shortlist: 3})
	nomad.Register(first.Job)
	gone := nomad.Allocs()[0]
	for _, alloc := range nomad.Allocs() {
		nomad.Run(alloc.ID)
	}

	node, err := nomad.State.NodeByID(nil, gone.NodeID)
	must.NoError(t, err)
	node = node.Copy()
	node.Status = structs.NodeStatusDisconnected
	nomad.SetNode(node)
	nomad.Evaluate("web")
	unknown := 0
	for _, alloc := range nomad.Allocs() {
		if alloc.ClientStatus == structs.AllocClientStatusUnknown {
			unknown++
		}
	}
	must.Eq(t, 1, unknown, must.Sprint("the scheduler does not behave as this test assumes"))
	must.Len(t, 3, nomad.Allocs())

	again := plan(t, job, cluster(), shortlist())
	must.True(t, again.Groups[0].Kept)
	must.SliceEmpty(t, again.Groups[0].Places)

	*job.TaskGroups[0].Count = 3
	more := plan(t, job, cluster(), shortlist())
	must.Len(t, 1, more.Groups[0].Places, must.Sprint("of three instances two run"))
	must.NotEq(t, gone.NodeID, more.Groups[0].Places[0].Node)
	must.SliceContains(t, more.Groups[0].Nodes, gone.NodeID)
	eval := nomad.Register(more.Job)
	must.Len(t, 1, nomad.Started(eval))
	for _, outcome := range planner.Compare(more, nomad.Started(eval)) {
		must.True(t, outcome.AsPlanned)
	}
}
