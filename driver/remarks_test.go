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
	"nomad-gpu-mem/driver/docker"
)

// Each case makes one thing wrong on a GPU of which a task has two units.
func TestRemarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wrong func(o *outlook)
		says  []string // nothing: there is nothing to remark
		size  uint64
		tasks bool
	}{
		"all is well": {wrong: func(*outlook) {}},
		"memory in use by strangers": {
			wrong: func(o *outlook) { o.gpu.State.UnmanagedMiB = 2500 },
			says:  []string{"2500 MiB", "job/app (alloc 5ea1e5) claimed 2048 MiB", "nvidia-smi"}, size: 3, tasks: true,
		},
		"memory in use by nobody knows whom": {
			wrong: func(o *outlook) { o.gpu.State.UsedMiB = 2048 + allocator.IdleMiB + 700 },
			says:  []string{"700 MiB", "job/app (alloc 5ea1e5) claimed 2048 MiB", "nvidia-smi"}, size: 1,
		},
		"the device plugin does not report": {wrong: func(o *outlook) { o.gpu.State = allocator.GPUState{UnmanagedMiB: 2500} }},
		"a claim of another node's task": {
			wrong: func(o *outlook) { o.anothers = o.gpu.Claims() },
			says:  []string{"units 0-1 (2048 MiB)", "job/app (alloc 5ea1e5)", "node-2", "doctor"},
		},
		"a container without a claim": {
			wrong: func(o *outlook) { o.strays = []Found{stray("other", gpuA)} },
			says:  []string{"container name", "without a claim", "docker rm -f name"},
		},
		"a container with its claim": {wrong: func(o *outlook) { o.strays = []Found{stray("attempt", gpuA)} }},
		"a container of another GPU": {wrong: func(o *outlook) { o.strays = []Found{stray("other", gpuB)} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := allocator.NewTable(storetest.NewMemory())
			owner := allocator.Owner{Job: "job", Task: "app", Alloc: "5ea1e5", Node: "n2", NodeName: "node-2"}
			must.NoError(t, table.Claim(t.Context(), owner, allocator.Attempt{ID: "attempt"}, []allocator.Booking{slice(gpuA, 0, 1)}))
			found, err := table.Inspect(t.Context(), gpuA)
			must.NoError(t, err)
			o := outlook{gpu: found}
			o.gpu.State = allocator.GPUState{Node: "host", UnitMiB: 1024, UsedMiB: 2048}
			c.wrong(&o)
			all := o.remarks()
			if c.says == nil {
				must.SliceEmpty(t, all)
				return
			}
			must.SliceLen(t, 1, all)
			for _, text := range c.says {
				must.StrContains(t, all[0].text, text)
			}
			must.Eq(t, c.size, all[0].size)
			must.Eq(t, c.tasks, all[0].told != nil)
			must.Eq(t, gpuA, all[0].gpu)
		})
	}
}

func stray(attempt string, gpu allocator.GPUID) Found {
	return Found{Container: docker.Container{ID: "id", Name: "name", Running: true}, Attempt: attempt, GPUs: []allocator.GPUID{gpu}}
}

func TestSilence(t *testing.T) {
	t.Parallel()
	now := time.Now()
	must.SliceEmpty(t, silence("host", allocator.NodeState{LastSeen: now.Add(-time.Minute)}, now))
	must.StrContains(t, silence("host", allocator.NodeState{LastSeen: now.Add(-time.Hour)}, now)[0].text, "has not reported since")
	must.StrContains(t, silence("host", allocator.NodeState{}, now)[0].text, "(host) has not reported,")
}

// What lasts is told once, and what comes and goes not at all.
func TestBulletin(t *testing.T) {
	t.Parallel()
	one := func(size uint64) []remark { return []remark{{about: "x", size: size}} }
	var b bulletin
	for n, round := range []struct {
		now        []remark
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
		news, over := b.after(round.now)
		must.SliceLen(t, round.news, news, must.Sprint("news of round ", n))
		must.SliceLen(t, round.over, over, must.Sprint("over in round ", n))
	}
}

// The device plugin says that others use memory of a GPU on which a task runs.
func TestTasksAreToldOfUnmanagedUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	host := openHome(w.stateDir).host
	must.NoError(t, w.table.PutNode(t.Context(), allocator.NodeState{Name: host, GPUs: []allocator.GPUID{gpuA, gpuB}}))
	must.NoError(t, w.table.PutGPU(t.Context(), gpuA, allocator.GPUState{Node: host, UnitMiB: 1024, Units: 23, UnmanagedMiB: 3000}))
	_, _, err := d.StartTask(w.task(``, slice(gpuA, 0, 1)))
	must.NoError(t, err)
	eventually(t, func() bool { return d.told("GPU " + string(gpuA) + ": 3000 MiB are in use") })
}

// A claim that a restored table brought back is released, also on a GPU that no task of
// this process was booked on; another node's stays.
func TestClaimsOnAllGPUsOfTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	openHome(w.stateDir).learn(allocator.Owner{Node: "node", NodeName: "node-1"}, nil) // an earlier process
	left := allocator.Owner{Job: "gone", Task: "app", Alloc: "gone", Node: "node", NodeName: "node-1"}
	theirs := allocator.Owner{Job: "job", Task: "app", Alloc: "theirs", Node: "n2", NodeName: "node-2"}
	must.NoError(t, w.earlier().Claim(t.Context(), left, allocator.Attempt{ID: "old"}, []allocator.Booking{slice(gpuB, 3)}))
	must.NoError(t, w.table.Claim(t.Context(), theirs, allocator.Attempt{ID: "x"}, []allocator.Booking{slice(gpuB, 4)}))
	must.NoError(t, w.table.PutNode(t.Context(), allocator.NodeState{Name: openHome(w.stateDir).host, GPUs: []allocator.GPUID{gpuB}}))
	d := w.boot()
	tenancy := d.plugin.services.Load().keeper.tenancy
	eventually(t, func() bool { _, sole := tenancy.sole(time.Now()); return sole })
	must.SliceLen(t, 2, w.claims(), must.Sprint("an earlier process may be at work"))
	tenancy.mu.Lock()
	tenancy.since = tenancy.since.Add(-time.Hour)
	tenancy.mu.Unlock()
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
	all := outlook{gpu: found}.remarks()
	must.SliceLen(t, 1, all)
	for _, name := range []string{"mine-job/app (alloc mine)", "secret-job/app (alloc secret)", "outside/alice"} {
		must.StrContains(t, all[0].text, name, must.Sprint("the operator knows all"))
	}
	h := &handle{task: &drivers.TaskConfig{ID: "task", Namespace: "mine"}, bookings: []allocator.Booking{slice(gpuA, 0)}, exited: make(chan struct{})}
	told := toTasks(all, []*handle{h})
	must.SliceLen(t, 1, told)
	must.StrContains(t, told[0].text, "mine-job/app (alloc mine) claimed 1024 MiB, a task of another namespace claimed 1024 MiB, "+
		"a claim outside Nomad requested 1024 MiB")
	must.StrNotContains(t, told[0].text, "secret")
	must.StrNotContains(t, told[0].text, "alice")
}
