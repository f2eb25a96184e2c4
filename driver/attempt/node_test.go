// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// The owner of a claim must be proven: hosts may share a name, and then the table gives
// each the other's GPUs.
func TestWhoseClaim(t *testing.T) {
	t.Parallel()
	here := allocator.Owner{Node: "node", NodeName: "node-1"}
	for name, c := range map[string]struct {
		gpu   allocator.GPUID
		owner allocator.Owner
		state allocator.ClaimState
		fresh bool // no task has named the node yet
		want  Ownership
	}{
		"this node's":                                   {gpu: gpuA, owner: here, want: Ours},
		"this node's, on a GPU without tasks":           {gpu: gpuB, owner: here, want: Ours},
		"from before the node was registered again":     {gpu: gpuA, owner: allocator.Owner{Node: "old", NodeName: "node-1"}, want: Ours},
		"of a node with this one's name, or its twin's": {gpu: gpuB, owner: allocator.Owner{Node: "old", NodeName: "node-1"}, want: Foreign},
		"another node's, on a GPU that is here":         {gpu: gpuA, owner: allocator.Owner{Node: "n2", NodeName: "node-2"}, want: Foreign},
		"another node's on this host":                   {gpu: gpuB, owner: allocator.Owner{Node: "n2", NodeName: "node-2"}, want: Unknown},
		"an operator's":                                 {gpu: gpuA, owner: here, state: allocator.Held, want: Unknown},
		"a planner's":                                   {gpu: gpuA, owner: here, state: allocator.Reserved, want: Unknown},
		"nothing is known of this node":                 {gpu: gpuA, owner: here, fresh: true, want: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := opened(t, t.TempDir())
			if !c.fresh {
				h.Learn(here, []allocator.GPUID{gpuA})
			}
			claim := allocator.Claim{Owner: c.owner, State: allocator.Running}
			if c.state != "" {
				claim.State = c.state
			}
			must.Eq(t, c.want, h.Ownership(c.gpu, claim))
		})
	}
}

// After a restart there may be no task to tell where this is.
func TestHomeIsRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opened(t, dir).Learn(allocator.Owner{Node: "node", NodeName: "node-1"}, nil)
	claim := allocator.Claim{Owner: allocator.Owner{Node: "node"}, State: allocator.Running}
	must.Eq(t, Ours, opened(t, dir).Ownership(gpuA, claim))
}

func opened(t *testing.T, dir string) *NodeIdentity {
	t.Helper()
	h, err := OpenNode(dir)
	must.NoError(t, err)
	return h
}
