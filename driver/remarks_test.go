// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/storetest"
	"nomad-gpu-mem/driver/attempt"
	"nomad-gpu-mem/driver/docker"
	"nomad-gpu-mem/driver/label"
)

// Each case makes one thing wrong on a GPU of which a task has two units.
func TestRemarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wrong func(o *attempt.View)
		says  []string // nothing: there is nothing to remark
		size  uint64
		tasks bool
	}{
		"all is well": {wrong: func(*attempt.View) {}},
		"memory in use by strangers": {
			wrong: func(o *attempt.View) { o.GPU.State.UnmanagedMiB = 2500 },
			says:  []string{"2500 MiB", "job/app (alloc 5ea1e5) claimed 2048 MiB", "nvidia-smi"}, size: 3, tasks: true,
		},
		"memory in use by unknown processes": {
			wrong: func(o *attempt.View) { o.GPU.State.UsedMiB = 2048 + allocator.IdleMiB + 700 },
			says:  []string{"700 MiB", "job/app (alloc 5ea1e5) claimed 2048 MiB", "nvidia-smi"}, size: 1,
		},
		"the device plugin does not report": {wrong: func(o *attempt.View) { o.GPU.State = allocator.GPUState{UnmanagedMiB: 2500} }},
		"a claim of another node's task": {
			wrong: func(o *attempt.View) { o.Foreign = o.GPU.Claims() },
			says:  []string{"units 0-1 (2048 MiB)", "job/app (alloc 5ea1e5)", "node-2", "doctor"},
		},
		"a container without a claim": {
			wrong: func(o *attempt.View) { o.Strays = []label.Found{stray("other", gpuA)} },
			says:  []string{"container name", "without a claim", "docker rm -f name"},
		},
		"a container with its claim": {wrong: func(o *attempt.View) { o.Strays = []label.Found{stray("attempt", gpuA)} }},
		"a container of another GPU": {wrong: func(o *attempt.View) { o.Strays = []label.Found{stray("other", gpuB)} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := allocator.NewTable(storetest.NewMemory())
			owner := allocator.Owner{Job: "job", Task: "app", Alloc: "5ea1e5", Node: "n2", NodeName: "node-2"}
			must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, []allocator.Booking{slice(gpuA, 0, 1)}))
			found, err := table.Inspect(t.Context(), gpuA)
			must.NoError(t, err)
			o := attempt.View{GPU: found}
			o.GPU.State = allocator.GPUState{Node: "host", UnitMiB: 1024, UsedMiB: 2048}
			c.wrong(&o)
			all := o.Remarks()
			if c.says == nil {
				must.SliceEmpty(t, all)
				return
			}
			must.SliceLen(t, 1, all)
			for _, text := range c.says {
				must.StrContains(t, all[0].Text, text)
			}
			must.Eq(t, c.size, all[0].Size)
			must.Eq(t, c.tasks, all[0].TextFor != nil)
			must.Eq(t, gpuA, all[0].GPU)
		})
	}
}

func stray(attempt string, gpu allocator.GPUID) label.Found {
	return label.Found{Container: docker.Container{ID: "id", Name: "name", Running: true}, Attempt: attempt, GPUs: []allocator.GPUID{gpu}}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	now := time.Now()
	must.SliceEmpty(t, attempt.SilenceRemark("host", allocator.NodeState{LastSeen: now.Add(-time.Minute)}, now))
	must.StrContains(t, attempt.SilenceRemark("host", allocator.NodeState{LastSeen: now.Add(-time.Hour)}, now)[0].Text, "has not reported since")
	must.StrContains(t, attempt.SilenceRemark("host", allocator.NodeState{}, now)[0].Text, "(host) has not reported,")
}

// What lasts is reported once, and what comes and goes not at all.
func TestBulletin(t *testing.T) {
	t.Parallel()
	one := func(size uint64) []attempt.Remark { return []attempt.Remark{{About: "x", Size: size}} }
	var b attempt.RemarkLog
	for n, round := range []struct {
		now        []attempt.Remark
		news, over int
	}{
		{now: one(1)},          // may be gone in a moment
		{},                     // and is
		{now: one(1)},          //
		{now: one(2), news: 1}, // it lasts
		{now: one(2)},          // which is known
		{now: one(1)},          //
		{now: one(3), news: 1}, // it grows
		{over: 1},              // it is over
		{},                     //
	} {
		news, over := b.Update(round.now)
		must.SliceLen(t, round.news, news, must.Sprint("news of round ", n))
		must.SliceLen(t, round.over, over, must.Sprint("over in round ", n))
	}
}

// The device plugin says that others use memory of a GPU on which a task runs.
func TestTasksAreToldOfUnmanagedUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	host := w.node(t).Host
	must.NoError(t, w.table.PutNode(t.Context(), allocator.NodeState{Name: host, GPUs: []allocator.GPUID{gpuA, gpuB}}))
	must.NoError(t, w.table.PutGPU(t.Context(), gpuA, allocator.GPUState{Node: host, UnitMiB: 1024, Units: 23, UnmanagedMiB: 3000}))
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 0, 1)))
	must.NoError(t, err)
	eventually(t, func() bool { return d.reported("GPU " + string(gpuA) + ": 3000 MiB are in use") })
}

// A claim that a restored table brought back is released, also on a GPU that no task of
// this process was booked on; another node's stays.
func TestClaimsOnAllGPUsOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node(t).Learn(allocator.Owner{Node: "node", NodeName: "node-1"}, nil) // an earlier process
	left := allocator.Owner{Job: "gone", Task: "app", Alloc: "gone", Node: "node", NodeName: "node-1"}
	theirs := allocator.Owner{Job: "job", Task: "app", Alloc: "theirs", Node: "n2", NodeName: "node-2"}
	must.NoError(t, w.earlier().Claim(t.Context(), left, allocator.Attempt{ID: "old"}, []allocator.Booking{slice(gpuB, 3)}))
	must.NoError(t, w.table.Claim(t.Context(), theirs, allocator.Attempt{ID: "x"}, []allocator.Booking{slice(gpuB, 4)}))
	must.NoError(t, w.table.PutNode(t.Context(), allocator.NodeState{Name: w.node(t).Host, GPUs: []allocator.GPUID{gpuB}}))
	d := w.boot()
	tenancy := d.plugin.services.Load().reaper.Instance
	eventually(t, func() bool { _, sole := tenancy.Sole(time.Now()); return sole })
	must.SliceLen(t, 2, w.claims(), must.Sprint("an earlier process may be at work"))
	d.soleForLong(t)
	eventually(t, func() bool { return len(w.claims()) == 1 })
	must.StrContains(t, w.claims()[0], "theirs")
}

// A task learns how much others have on its GPU, and the names of those in its namespace.
func TestUnmanagedUseNamesNoTaskOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	table := allocator.NewTable(storetest.NewMemory())
	for unit, namespace := range []string{"mine", "secret"} {
		owner := allocator.Owner{Namespace: namespace, Job: namespace + "-job", Task: "app", Alloc: namespace}
		must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "1"}, []allocator.Booking{slice(gpuA, unit)}))
	}
	must.NoError(t, table.Request(t.Context(), allocator.Owner{Job: "outside", Task: "alice", Alloc: "person"}, time.Hour,
		allocator.UnitRequest{GPU: gpuA, UnitMiB: slice(gpuA, 1).UnitMiB, TotalUnits: slice(gpuA, 1).Of, Count: 1}))
	found, err := table.Inspect(t.Context(), gpuA)
	must.NoError(t, err)
	found.State = allocator.GPUState{Node: "host", UnitMiB: 1024, UnmanagedMiB: 2500}
	all := attempt.View{GPU: found}.Remarks()
	must.SliceLen(t, 1, all)
	for _, name := range []string{"mine-job/app (alloc mine)", "secret-job/app (alloc secret)", "outside/alice"} {
		must.StrContains(t, all[0].Text, name, must.Sprint("the operator knows all"))
	}
	h := &handle{task: &drivers.TaskConfig{ID: "task", Namespace: "mine"}, bookings: []allocator.Booking{slice(gpuA, 0)}, exited: make(chan struct{})}
	told := toTasks(all, []*handle{h})
	must.SliceLen(t, 1, told)
	must.StrContains(t, told[0].Text, "mine-job/app (alloc mine) claimed 1024 MiB, a task of another namespace claimed 1024 MiB, "+
		"a claim outside Nomad requested 1024 MiB")
	must.StrNotContains(t, told[0].Text, "secret")
	must.StrNotContains(t, told[0].Text, "alice")
}

// node is what processes of the plugin have learned of the node.
func (w *world) node(t *testing.T) *attempt.NodeIdentity {
	t.Helper()
	node, err := attempt.OpenNode(w.stateDir)
	must.NoError(t, err)
	return node
}
