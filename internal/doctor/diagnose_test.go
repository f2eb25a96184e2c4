// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package doctor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/internal/doctor"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const gpu = allocator.GPUID("GPU-1")

// clinic is a table with one node, one GPU and one task that runs since an hour,
// and the matching state of Nomad and the node's engine. Nothing is wrong.
type clinic struct {
	t     *testing.T
	store *storetest.Memory
	nomad *doctor.Nomad
	local *doctor.Local
}

func newClinic(t *testing.T) *clinic {
	c := &clinic{t: t, store: storetest.NewMemory()}
	must.NoError(t, c.table(noon).PutNode(t.Context(), allocator.NodeState{Name: "host-1", Version: "1.0.0"}))
	must.NoError(t, c.table(noon).PutGPU(t.Context(), gpu, allocator.GPUState{Node: "host-1", UnitMiB: 1024, Units: 8, MemoryMiB: 8192}))
	must.NoError(t, c.table(noon.Add(-time.Hour)).Claim(t.Context(), task, allocator.Attempt{ID: attempt}, []allocator.Booking{booked}))
	c.nomad = &doctor.Nomad{Allocs: map[string]doctor.Alloc{"alloc-1": {
		Job: "train", NodeName: "host-1",
		Tasks: map[string]doctor.Task{"main": {
			Running: true, Since: noon.Add(-time.Hour), Units: map[allocator.GPUID]allocator.UnitSet{gpu: booked.Units},
		}},
	}}}
	c.local = &doctor.Local{Node: "host-1", Containers: []doctor.Container{
		{Name: "main_alloc-1", Alloc: "alloc-1", Attempt: attempt, GPUs: []allocator.GPUID{gpu}, Running: true, Since: noon.Add(-time.Hour)},
	}}
	return c
}

const attempt = "alloc-1/main/1"

var (
	task   = allocator.Owner{Namespace: "default", Job: "train", Group: "g", Task: "main", Alloc: "alloc-1", Node: "id", NodeName: "host-1"}
	booked = allocator.Booking{GPU: gpu, UnitMiB: 1024, Of: 8, Units: allocator.NewUnitSet(0, 1)}
)

func (c *clinic) table(now time.Time) *allocator.Table {
	return allocator.NewTable(c.store, allocator.WithClock(func() time.Time { return now }))
}

func (c *clinic) diagnose(now time.Time) []doctor.Finding {
	snapshot, err := c.table(now).Snapshot(c.t.Context())
	must.NoError(c.t, err)
	return doctor.Diagnose(doctor.Evidence{Now: now, Table: snapshot, Version: "1.0.0", Nomad: c.nomad, Local: c.local})
}

func (c *clinic) alloc(change func(*doctor.Alloc)) {
	alloc := c.nomad.Allocs["alloc-1"]
	change(&alloc)
	c.nomad.Allocs["alloc-1"] = alloc
}

func (c *clinic) task(change func(*doctor.Task)) {
	c.alloc(func(a *doctor.Alloc) {
		task := a.Tasks["main"]
		change(&task)
		a.Tasks["main"] = task
	})
}

func (c *clinic) put(key, value string) {
	entry, err := c.store.Get(c.t.Context(), key)
	must.NoError(c.t, err)
	must.NoError(c.t, c.store.Apply(c.t.Context(), []allocator.Write{{Key: key, Value: []byte(value), Version: entry.Version}}))
}

func noContainer(c *clinic) { c.local.Containers = nil }
func noNomad(c *clinic)     { c.nomad = nil }
func elsewhere(c *clinic)   { c.local.Node, c.local.Containers = "desk", nil }
func unknown(c *clinic)     { delete(c.nomad.Allocs, "alloc-1") }

// Each case makes one thing wrong, or several that only look wrong.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	seq := func(steps ...func(*clinic)) func(*clinic) {
		return func(c *clinic) {
			for _, step := range steps {
				step(c)
			}
		}
	}
	ended := func(c *clinic) { c.alloc(func(a *doctor.Alloc) { a.Ended = true }) }
	lost := func(c *clinic) { c.alloc(func(a *doctor.Alloc) { a.Lost = true }) }
	noClaim := func(c *clinic) {
		must.NoError(t, c.table(noon).Release(t.Context(), task, attempt, []allocator.GPUID{gpu}))
	}
	stuck := func(c *clinic) {
		must.NoError(t, c.table(noon).Stuck(t.Context(), task, attempt, []allocator.GPUID{gpu}))
	}
	// The GPU is reported by another node, which lives.
	moved := func(c *clinic) {
		must.NoError(t, c.table(noon).PutNode(t.Context(), allocator.NodeState{Name: "host-2", Version: "1.0.0", GPUs: []allocator.GPUID{gpu}}))
		must.NoError(t, c.table(noon).PutNode(t.Context(), allocator.NodeState{Name: "host-1", Version: "1.0.0", GPUs: []allocator.GPUID{}}))
		must.NoError(t, c.table(noon).PutGPU(t.Context(), gpu, allocator.GPUState{Node: "host-2", UnitMiB: 1024, Units: 8, MemoryMiB: 8192}))
	}
	for name, test := range map[string]struct {
		wrong func(*clinic)
		after time.Duration
		kind  doctor.Kind // "" if nothing is found
		safe  bool
	}{
		"all is well": {wrong: func(*clinic) {}},
		"neither Nomad nor an engine was queried": {wrong: seq(noNomad, func(c *clinic) { c.local = nil })},
		"allocation ended":                        {wrong: seq(ended, noContainer), kind: doctor.Leak, safe: true},
		"allocation ended, asked from a desk":     {wrong: seq(ended, elsewhere), kind: doctor.Leak, safe: true},
		"allocation ended, container cannot be":   {wrong: seq(ended, elsewhere, stuck), kind: doctor.Leak},
		"allocation ended, container is gone":     {wrong: seq(ended, noContainer, stuck), kind: doctor.Leak, safe: true},
		"allocation ended, container runs":        {wrong: ended},
		"node lost":                               {wrong: seq(lost, elsewhere), kind: doctor.Leak},
		"node lost and back without container":    {wrong: seq(lost, noContainer), kind: doctor.Leak, safe: true},
		"node lost, its GPU is in another":        {wrong: seq(lost, elsewhere, moved), kind: doctor.Leak, safe: true},
		"node renamed, task runs":                 {wrong: seq(elsewhere, moved)},
		"allocation unknown, GPU elsewhere":       {wrong: seq(unknown, elsewhere, moved), kind: doctor.Leak},
		"allocation unknown":                      {wrong: seq(unknown, elsewhere), kind: doctor.Leak},
		"allocation unknown, looked on node":      {wrong: seq(unknown, noContainer), kind: doctor.Leak, safe: true},
		"of another cluster's node":               {wrong: seq(unknown, elsewhere, func(c *clinic) { c.nomad.Nodes = map[allocator.NodeID]bool{"other": true} })},
		"of another cluster's node, of the same host name": {wrong: seq(unknown, noContainer, func(c *clinic) {
			c.nomad.Nodes = map[allocator.NodeID]bool{"other": true}
		})},
		"another engine's, of the same host name, no Nomad": {wrong: seq(noNomad, noContainer, func(c *clinic) {
			must.NoError(t, c.table(noon.Add(-time.Hour)).Release(t.Context(), task, attempt, []allocator.GPUID{gpu}))
			must.NoError(t, c.table(noon.Add(-time.Hour)).Claim(t.Context(), task, allocator.Attempt{ID: attempt, Engine: "engine-1"}, []allocator.Booking{booked}))
			c.local.Engine = "engine-2"
		})},
		"task ended long ago": {wrong: seq(noContainer, func(c *clinic) { c.task(func(t *doctor.Task) { t.Running, t.Ended = false, true }) }), kind: doctor.Leak, safe: true},
		"task ended just now": {wrong: seq(noContainer, func(c *clinic) {
			c.task(func(t *doctor.Task) { t.Running, t.Ended, t.Since = false, true, noon })
		})},
		"no container, no Nomad":          {wrong: seq(noNomad, noContainer), kind: doctor.Leak, safe: true},
		"another node's, no Nomad":        {wrong: seq(noNomad, elsewhere)},
		"GPU of a node that is not there": {wrong: func(c *clinic) { c.put(allocator.StateKey("GPU-9"), `{"node":"old-name"}`) }, kind: doctor.DeadNode},
		"GPU of a node that has just come": {wrong: func(c *clinic) {
			c.put(allocator.StateKey("GPU-9"), `{"node":"new","updated_at":"`+noon.Format(time.RFC3339)+`"}`)
		}},
		"claim is gone":                              {wrong: noClaim, kind: doctor.Phantom},
		"claim is gone, no Nomad":                    {wrong: seq(noNomad, noClaim), kind: doctor.Phantom},
		"claim is gone, task is new":                 {wrong: seq(noClaim, func(c *clinic) { c.task(func(t *doctor.Task) { t.Since = noon }) })},
		"task of no GPU":                             {wrong: seq(noClaim, noNomad, func(c *clinic) { c.local.Containers[0].GPUs = nil })},
		"claims cannot be read":                      {wrong: seq(noNomad, func(c *clinic) { c.local = nil; c.put(allocator.ClaimsKey(gpu), "4 GiB") }), kind: doctor.Unreadable},
		"memory in use by strangers":                 {wrong: func(c *clinic) { c.put(allocator.StateKey(gpu), `{"node":"host-1","unmanaged_mib":2048}`) }, kind: doctor.Squatter},
		"units given twice by Nomad":                 {wrong: func(c *clinic) { c.nomad.Allocs["alloc-0"] = twin }, kind: doctor.Overlap},
		"units of a task are another's in the table": {wrong: func(c *clinic) { c.nomad.Allocs["alloc-0"] = c.usurped() }, kind: doctor.Overlap},
		"units of a task that just started": {wrong: func(c *clinic) {
			a := c.usurped()
			set(a, func(t *doctor.Task) { t.Since = noon })
			c.nomad.Allocs["alloc-0"] = a
		}},
		"units of a task that runs, likewise": {wrong: func(c *clinic) {
			a := c.usurped()
			set(a, func(t *doctor.Task) { t.Running = true })
			c.nomad.Allocs["alloc-0"] = a
		}, kind: doctor.Overlap},
		"units of a task are a holder's":       {wrong: seq(noClaim, func(c *clinic) { c.hold() }), kind: doctor.Overlap},
		"units of a task are kept for another": {wrong: func(c *clinic) { c.reserve() }},
		"units of a task are held by a leak":   {wrong: seq(ended, noContainer, func(c *clinic) { c.nomad.Allocs["alloc-0"] = twin }), kind: doctor.Leak, safe: true},
		"use that cannot be attributed": {wrong: func(c *clinic) {
			c.put(allocator.StateKey(gpu), fmt.Sprintf(`{"node":"host-1","used_mib":%d}`, 2*1024+allocator.IdleMiB+300))
		}, kind: doctor.Squatter},
		"memory in use on a GPU that is gone": {wrong: func(c *clinic) {
			c.put(allocator.StateKey(gpu), `{"node":"host-1","unmanaged_mib":2048}`)
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"1.0.0","last_seen":"2026-01-02T12:00:00Z","gpus":[]}`)
		}},
		"use that the slices and an idle GPU explain": {wrong: func(c *clinic) {
			c.put(allocator.StateKey(gpu), fmt.Sprintf(`{"node":"host-1","used_mib":%d}`, 2*1024+allocator.IdleMiB))
		}},
		"units given again after end": {wrong: func(c *clinic) { dead := twin; dead.Ended = true; c.nomad.Allocs["alloc-0"] = dead }},
		"lease lost":                  {wrong: func(c *clinic) { c.put(allocator.NodeKey("host-1"), leased) }, kind: doctor.DeadNode},
		"silent for long, no lease":   {wrong: func(*clinic) {}, after: time.Hour, kind: doctor.DeadNode},
		"silent for a moment":         {wrong: func(*clinic) {}, after: 5 * time.Minute},
		"GPU smaller than its claims": {wrong: func(c *clinic) {
			c.put(allocator.StateKey(gpu), `{"node":"host-1","memory_mib":2048,"reserved_mib":300,"unit_mib":1024,"units":2}`)
		}, kind: doctor.Overclaim},
		"GPU with a slightly larger driver reserve": {wrong: func(c *clinic) {
			c.put(allocator.StateKey(gpu), `{"node":"host-1","memory_mib":2048,"reserved_mib":8,"unit_mib":1024,"units":2}`)
		}},
		"no driver on the node": {wrong: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"1.0.0","last_seen":"2026-01-02T12:00:00Z","gpus":[],"fault":"Driver Not Loaded"}`)
		}, kind: doctor.Blind},
		"two machines, one host name": {wrong: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"1.0.0","last_seen":"2026-01-02T12:00:00Z","shared_until":"2026-01-02T12:01:00Z"}`)
		}, kind: doctor.SharedName},
		"two machines had one host name": {wrong: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"1.0.0","last_seen":"2026-01-02T12:00:00Z","shared_until":"2026-01-02T12:01:00Z"}`)
		}, after: 2 * time.Minute},
		"another version": {wrong: func(c *clinic) {
			c.put(allocator.NodeKey("host-1"), `{"name":"host-1","version":"0.9.0","last_seen":"2026-01-02T12:00:00Z"}`)
		}, kind: doctor.Skew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t)
			test.wrong(c)
			found := c.diagnose(noon.Add(test.after))
			if test.kind == "" {
				must.SliceEmpty(t, found)
				return
			}
			must.Len(t, 1, found)
			must.Eq(t, test.kind, found[0].Kind)
			must.Eq(t, test.safe, found[0].Remedy.Safe)
			for _, text := range []string{found[0].What, found[0].Why, found[0].Do} {
				must.NotEq(t, "", text)
			}
		})
	}
}

var twin = doctor.Alloc{Job: "other", NodeName: "host-1", Tasks: map[string]doctor.Task{"main": {
	Since: noon, Units: map[allocator.GPUID]allocator.UnitSet{gpu: allocator.NewUnitSet(1, 2)},
}}}

// usurped moves the claimed units, in Nomad, from their task to another one, which
// has no other units.
func (c *clinic) usurped() doctor.Alloc {
	c.task(func(t *doctor.Task) { t.Units = nil })
	return doctor.Alloc{Job: "other", NodeName: "host-1", Tasks: map[string]doctor.Task{"main": {
		Since: noon.Add(-time.Hour), Units: map[allocator.GPUID]allocator.UnitSet{gpu: booked.Units},
	}}}
}

func set(a doctor.Alloc, change func(*doctor.Task)) {
	task := a.Tasks["main"]
	change(&task)
	a.Tasks["main"] = task
}

var (
	holder = allocator.Owner{Job: "outside-nomad", Task: "ada", Alloc: "hold-1"}
	all    = allocator.UnitRequest{GPU: gpu, UnitMiB: 1024, TotalUnits: 8, Count: 8}
)

// hold holds all units outside Nomad.
func (c *clinic) hold() {
	must.NoError(c.t, c.table(noon).Request(c.t.Context(), holder, time.Hour, all))
	must.NoError(c.t, c.table(noon).Hold(c.t.Context(), holder, gpu, 0))
}

// reserve reserves the rest of the GPU for a later task, and books its units in Nomad
// for the running task.
func (c *clinic) reserve() {
	rest := all
	rest.Count = 6
	must.NoError(c.t, c.table(noon).Reserve(c.t.Context(), allocator.Owner{Job: "next", Task: "main", Alloc: "plan-1"}, time.Minute, []allocator.UnitRequest{rest}))
	c.task(func(t *doctor.Task) {
		t.Units = map[allocator.GPUID]allocator.UnitSet{gpu: allocator.NewUnitSet(0, 1, 2)}
	})
}

const leased = `{"name":"host-1","version":"1.0.0","lease_seconds":90,"last_seen":"2026-01-02T12:00:00Z"}`

func TestRemedies(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(*clinic){
		"leak":       func(c *clinic) { unknown(c); noContainer(c) },
		"unreadable": func(c *clinic) { noNomad(c); c.local = nil; c.put(allocator.ClaimsKey(gpu), "4 GiB") },
		"dead node":  func(c *clinic) { c.put(allocator.NodeKey("host-1"), leased) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t)
			wrong(c)
			found := c.diagnose(noon)
			must.Len(t, 1, found)
			must.NoError(t, found[0].Remedy.Apply(t.Context(), c.table(noon)))
			if name == "dead node" {
				c.nomad, c.local = nil, nil
			}
			must.SliceEmpty(t, c.diagnose(noon))
		})
	}
	must.Error(t, doctor.Remedy{}.Apply(t.Context(), nil))
}

// Deleting a newer version's value would lose its claims.
func TestNewerValueHasNoRemedy(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	noNomad(c)
	c.local = nil
	c.put(allocator.ClaimsKey(gpu), `{"version":2,"unit_mib":1024,"units":"aab.","claims":{}}`)
	found := c.diagnose(noon)
	must.Len(t, 1, found)
	must.Eq(t, doctor.Unreadable, found[0].Kind)
	must.Eq(t, "", found[0].Remedy.Action)
}

// A node that is gone is purged, but for the claims of tasks that may run: it may have
// another name by now.
func TestPurgeSparesTasksThatMayRun(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*clinic){
		"Nomad says so":      elsewhere,
		"the engine says so": func(c *clinic) { c.nomad = nil },
		"another Nomad's node": func(c *clinic) {
			elsewhere(c)
			unknown(c)
			c.nomad.Nodes = map[allocator.NodeID]bool{"other": true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClinic(t)
			change(c)
			later := noon.Add(time.Hour)
			found := c.diagnose(later)
			must.Len(t, 1, found)
			must.Eq(t, doctor.DeadNode, found[0].Kind)
			must.StrContains(t, found[0].What, "the tasks of 1 of them may still run")
			must.NoError(t, found[0].Remedy.Apply(t.Context(), c.table(later)))
			snapshot, err := c.table(later).Snapshot(t.Context())
			must.NoError(t, err)
			must.SliceEmpty(t, snapshot.Nodes)
			must.Len(t, 1, snapshot.GPUs[0].Claims())
		})
	}
}

// A node that was renamed is not lost: its finding says where its GPUs are now.
func TestRenamedNodeIsNamed(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	node := allocator.NodeState{Name: "host-1", Version: "1.0.0", GPUs: []allocator.GPUID{gpu}}
	must.NoError(t, c.table(noon).PutNode(t.Context(), node))
	later := noon.Add(time.Hour)
	node.Name = "host-2"
	must.NoError(t, c.table(later).PutNode(t.Context(), node))
	must.NoError(t, c.table(later).PutGPU(t.Context(), gpu, allocator.GPUState{Node: "host-2", UnitMiB: 1024, Units: 8, MemoryMiB: 8192}))
	found := c.diagnose(later)
	must.Len(t, 1, found)
	must.Eq(t, doctor.DeadNode, found[0].Kind)
	must.StrContains(t, found[0].What, "node host-2 reports its GPU GPU-1 now: was the node replaced or renamed?")
	must.False(t, found[0].Remedy.Safe)
	must.NoError(t, found[0].Remedy.Apply(t.Context(), c.table(later)))
	snapshot, err := c.table(later).Snapshot(t.Context())
	must.NoError(t, err)
	must.Len(t, 1, snapshot.Nodes)
	must.Eq(t, "host-2", snapshot.GPUs[0].State.Node)
	must.Len(t, 1, snapshot.GPUs[0].Claims())
}
