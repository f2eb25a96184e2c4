// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/doctor"
)

const away = allocator.GPUID("GPU-away")

// leftOver writes the state of a GPU that the living node host-1 no longer lists, as of
// then, by a device plugin that was started then.
func (c *clinic) leftOver(then time.Time) {
	at := then.Format(time.RFC3339)
	c.put(allocator.StateKey(away), `{"node":"host-1","memory_mib":8192,"unit_mib":1024,"units":8,"updated_at":"`+at+`"}`)
	c.put(allocator.NodeKey("host-1"), fmt.Sprintf(
		`{"name":"host-1","version":"1.0.0","last_seen":%q,"started_at":%q,"gpus":[%q]}`, noon.Format(time.RFC3339), at, gpu))
}

// The state of a GPU that no node has is found after a day, and only if
// nothing needs it.
func TestGoneGPU(t *testing.T) {
	t.Parallel()
	longAgo := noon.Add(-25 * time.Hour)
	claim := func(c *clinic) {
		owner := allocator.Owner{Job: "train", Task: "side", Alloc: "alloc-1", Node: "id", NodeName: "host-1"}
		must.NoError(t, c.table(noon).Claim(t.Context(), owner, allocator.Attempt{ID: "2"},
			[]allocator.Booking{{GPU: away, UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(0)}}))
	}
	for name, test := range map[string]struct {
		then  time.Time
		still func(*clinic) // what hangs on it; nil: nothing
		found bool
	}{
		"gone for a day":            {then: longAgo, found: true},
		"gone for less than a day":  {then: noon.Add(-23 * time.Hour)},
		"has a claim":               {then: longAgo, still: claim},
		"has a cordon":              {then: longAgo, still: func(c *clinic) { must.NoError(t, c.table(noon).Cordon(t.Context(), away, "fan")) }},
		"its node is still here":    {then: longAgo, still: func(c *clinic) { c.listedBy("host-1") }},
		"another node has found it": {then: longAgo, still: func(c *clinic) { c.listedBy("host-2") }},
		"its node does not tell": {then: longAgo, still: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"1.0.0","last_seen":"2026-01-02T12:00:00Z"}`)
		}},
		"its device plugin was started just now": {then: longAgo, still: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), fmt.Sprintf(
				`{"name":"host-1","version":"1.0.0","last_seen":%q,"started_at":%[1]q,"gpus":[%q]}`, noon.Format(time.RFC3339), gpu))
		}},
		"Nomad has given units of it to a task": {then: longAgo, still: func(c *clinic) {
			c.nomad.Allocs["alloc-0"] = doctor.Alloc{Job: "other", NodeName: "host-1", Tasks: map[string]doctor.Task{"main": {
				Since: noon, Units: map[allocator.GPUID]allocator.UnitSet{away: allocator.NewUnitSet(0)},
			}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t)
			c.leftOver(test.then)
			if test.still != nil {
				test.still(c)
			}
			found := c.diagnose(noon)
			if !test.found {
				must.SliceEmpty(t, found)
				return
			}
			must.Len(t, 1, found)
			must.Eq(t, doctor.GoneGPU, found[0].Kind)
			must.True(t, found[0].Remedy.Safe)
			must.True(t, found[0].Minor)
			must.NoError(t, found[0].Remedy.Apply(t.Context(), c.table(noon)))
			must.SliceEmpty(t, c.diagnose(noon))
			entry, err := c.store.Get(t.Context(), allocator.StateKey(away))
			must.NoError(t, err)
			must.Zero(t, entry.Version)
		})
	}
}

// listedBy makes a living node list the GPU that is gone.
func (c *clinic) listedBy(node allocator.NodeName) {
	state := allocator.NodeState{Name: node, Version: "1.0.0", GPUs: []allocator.GPUID{gpu, away}}
	must.NoError(c.t, c.table(noon).PutNode(c.t.Context(), state))
}

// A claim of a task that Nomad still has, but without a container on its node, is
// not a second task to stop.
func TestOverlapWithATaskThatHasNoContainer(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.nomad.Allocs["alloc-0"] = c.usurped()
	found := c.diagnose(noon)
	must.Len(t, 1, found)
	must.StrContains(t, found[0].Do, "stop one of the two")
	noContainer(c)
	found = c.diagnose(noon)
	must.Len(t, 1, found)
	must.Eq(t, doctor.Overlap, found[0].Kind)
	must.StrContains(t, found[0].What, "has no container on this node")
	must.StrNotContains(t, found[0].Do, "stop one of the two")
}
