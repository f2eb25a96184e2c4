// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/e2e/soak/model"
)

// testInjected breaks invariants deliberately, to show that the soak detects that.
func testInjected(t *testing.T, c *cluster, begin model.Remains) {
	var mu sync.Mutex
	found := map[model.Kind]int{}
	o := newObserver(c, func(v model.Violation) {
		mu.Lock()
		defer mu.Unlock()
		found[v.Kind]++
	})
	o.checker = model.NewChecker(model.Bounds{Unclaimed: 2 * time.Second, Orphan: 2 * time.Second}, o.timeline)
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { o.observe(ctx) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	seen := func(kind model.Kind) error {
		mu.Lock()
		defer mu.Unlock()
		if found[kind] == 0 {
			return fmt.Errorf("%q is not found yet", kind)
		}
		return nil
	}
	sees := func(kind model.Kind) {
		t.Helper()
		eventually(t, func() error { return seen(kind) })
	}

	run := startOne(t, o)
	doubleContainer(t, c, run)
	sees(model.Double)
	sees(model.Exposed)
	// The driver confirms the claim again, maybe before the soak looks: then it is released once more.
	eventually(t, func() error {
		releaseUnderContainer(t, c, run)
		return seen(model.Unclaimed)
	})

	gpu := c.gpus.GPUs[0].UUID
	owner := allocator.Owner{Namespace: "default", Job: "orphan", Group: "g", Task: "app", Alloc: stranger, Node: "n", NodeName: "elsewhere"}
	booking := allocator.Booking{GPU: allocator.GPUID(gpu), UnitMiB: 1024, Of: c.units(0), Units: allocator.NewUnitSet(c.units(0) - 1)}
	must.NoError(t, c.table.Claim(ctx, owner, allocator.Attempt{ID: stranger + "/app/1", Begun: time.Now()}, []allocator.Booking{booking}))
	sees(model.Orphan)
	end, err := c.inventory(ctx)
	must.NoError(t, err)
	leaked := map[string]int{}
	for _, leak := range model.Leaks(begin, end) {
		leaked[leak.Kind]++
	}
	for _, kind := range []string{"claim", "container", "process", "mount", "network link", "file in state_dir", "allocation"} {
		must.Positive(t, leaked[kind], must.Sprintf("of kind %q; found %v", kind, leaked))
	}
	must.NoError(t, c.table.Release(ctx, owner, stranger+"/app/1", []allocator.GPUID{booking.GPU}))
}

// startOne runs a job and returns the run of its container.
func startOne(t *testing.T, o *observer) model.Run {
	t.Helper()
	job := formOf("service").job("victim", model.Request{Units: []uint64{2}, Count: 1}, 0)
	job.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = "nvidia/gpu-mem/" + o.gpus.GPUs[0].UUID
	_, _, err := o.nomad.Jobs().Register(job, nil)
	must.NoError(t, err)
	t.Cleanup(func() { endJob(t, o, "victim") })
	var run model.Run
	eventually(t, func() error {
		running := o.running()
		if len(running) != 1 {
			return fmt.Errorf("%d containers run", len(running))
		}
		run = running[0]
		return nil
	})
	return run
}

func endJob(t *testing.T, o *observer, job string) {
	t.Helper()
	_, _, err := o.nomad.Jobs().Deregister(job, true, nil)
	must.NoError(t, err)
	eventually(t, func() error {
		allocs, _, err := o.nomad.Jobs().Allocations(job, true, nil)
		for _, a := range allocs {
			if a.ClientStatus == api.AllocClientStatusRunning {
				return fmt.Errorf("allocation %s runs", a.ID)
			}
		}
		return err
	})
}

// doubleContainer runs a second container, with the labels of the first and with all GPUs.
func doubleContainer(t *testing.T, c *cluster, run model.Run) {
	t.Helper()
	docker := c.machineNamed(run.Engine).docker
	first, err := docker.ContainerInspect(t.Context(), run.ID)
	must.NoError(t, err)
	second, err := docker.ContainerCreate(t.Context(),
		&container.Config{
			Image: image, Labels: first.Config.Labels, Cmd: []string{"sleep", "600"},
			Env: []string{"NVIDIA_VISIBLE_DEVICES=all"},
		},
		&container.HostConfig{Runtime: "nvidia"}, nil, nil, "second")
	must.NoError(t, err)
	t.Cleanup(func() {
		must.NoError(t, docker.ContainerRemove(context.Background(), second.ID, container.RemoveOptions{Force: true}))
	})
	must.NoError(t, docker.ContainerStart(t.Context(), second.ID, container.StartOptions{}))
}

// releaseUnderContainer releases a running task's claim.
func releaseUnderContainer(t *testing.T, c *cluster, run model.Run) {
	t.Helper()
	gpu := allocator.GPUID(run.GPUs[0])
	found, err := c.table.Inspect(t.Context(), gpu)
	must.NoError(t, err)
	for _, claim := range found.Claims() {
		must.NoError(t, c.table.Release(t.Context(), claim.Owner, claim.Attempt, []allocator.GPUID{gpu}))
	}
}

// eventually repeats check until it returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	const within = time.Minute
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", within, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
