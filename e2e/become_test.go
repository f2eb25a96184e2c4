// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// The expected results of the jobs in shapes_test.go that need more than a line.

func testGPUSizes(t *testing.T, job string) {
	shared.requireNotPlaced(t, job, "unitless")
	eventually(t, startTime, "the other groups end well", func() error {
		summary, _, err := shared.nomad.Jobs().Summary(job, nil)
		if err != nil {
			return err
		}
		for _, group := range []string{"mib", "gib", "gb", "unitless-affinity"} {
			if summary.Summary[group].Complete != 1 {
				return fmt.Errorf("%s: %+v", group, summary.Summary[group])
			}
		}
		return nil
	})
}

func testFastNetwork(t *testing.T, job string) {
	states := map[string]string{"source": "running", "receive": "failed"}
	shared.waitGroups(t, job, states)
	refused := shared.groupAlloc(t, job, "receive").TaskStates["receive"]
	must.StrContains(t, eventTexts(refused), "a privileged container sees every GPU of the node")
	source := shared.groupAlloc(t, job, "source")
	container := shared.containers(t, source.ID)[0]
	must.StrContains(t, shared.inside(t, container, "ls", "/dev/infiniband"), "rdma_cm\nuverbs0\n")
}

// The sidecar holds the slice before the other tasks run, and as long as they do.
func testSidecarModel(t *testing.T, job string) {
	shared.waitGroups(t, job, map[string]string{"chat": "running"})
	eventually(t, startTime, "all tasks have come so far", func() error {
		for task, state := range map[string]string{"model": "running", "probe": "dead", "ui": "running"} {
			if got := shared.groupAlloc(t, job, "chat").TaskStates[task]; got == nil || got.State != state || got.Failed {
				return fmt.Errorf("%s: %+v", task, got)
			}
		}
		return nil
	})
	held := shared.claimsOf(t, job, allocator.Running)
	must.Len(t, 1, held)
	must.Eq(t, "model", held[0].Task)
}

// The monitor holds no units and sees the units of others.
func testMonitor(t *testing.T, job string) {
	alloc := shared.waitRunning(t, job)
	held := shared.claimsOf(t, "named-model", allocator.Running)[0]
	eventually(t, startTime, "the monitor sees a slice", func() error {
		if text := shared.stdout(t, alloc, "monitor"); !strings.Contains(text, held.Alloc) {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	for _, claim := range shared.claims(t) {
		must.NotEq(t, job, claim.Job)
	}
}

// The driver overrides the GPUs that an image requests.
func testDispatched(t *testing.T, job string) {
	response, _, err := shared.nomad.Jobs().Dispatch(job, map[string]string{"command": "env", "run_id": "7"}, nil, "", nil)
	must.NoError(t, err)
	out := shared.finished(t, response.DispatchedJobID)
	must.StrContains(t, out, "NVIDIA_VISIBLE_DEVICES=void\n")
	must.StrContains(t, out, "RUN_ID=7\n")
}

// requirePinned verifies that the job's only task runs and sees only the GPU of its claim,
// which is gpu if that is given. It returns the task's environment.
func (c *cluster) requirePinned(t *testing.T, job, gpu string) map[string]string {
	t.Helper()
	c.waitRunning(t, job)
	held := c.claimsOf(t, job, allocator.Running)
	must.Len(t, 1, held)
	if gpu != "" {
		must.Eq(t, gpu, string(held[0].gpu))
	}
	env := c.envInside(t, held[0].Container)
	must.Eq(t, string(held[0].gpu), env["GPU_MEM_UUIDS"])
	must.Eq(t, []string{nodeOf(held[0].gpu)}, c.gpusInside(t, held[0].Container))
	return env
}

// requireNotPlaced waits until Nomad reports the reason for which it places none of the
// group's tasks.
func (c *cluster) requireNotPlaced(t *testing.T, job, group string) {
	t.Helper()
	eventually(t, startTime, fmt.Sprintf("group %s of job %s is not placed", group, job), func() error {
		evals, _, err := c.nomad.Jobs().Evaluations(job, nil)
		if err != nil {
			return err
		}
		for _, eval := range evals {
			metric := eval.FailedTGAllocs[group]
			if metric != nil && metric.NodesEvaluated > 0 && metric.NodesFiltered+metric.NodesExhausted == metric.NodesEvaluated {
				return nil
			}
		}
		text, err := json.Marshal(evals)
		return fmt.Errorf("%s, %w", text, err)
	})
	must.Nil(t, c.groupAlloc(t, job, group))
}

// groupAlloc returns an allocation of the group, nil if there is none.
func (c *cluster) groupAlloc(t *testing.T, job, group string) *api.Allocation {
	t.Helper()
	allocs, _, err := c.nomad.Jobs().Allocations(job, true, nil)
	must.NoError(t, err)
	i := slices.IndexFunc(allocs, func(alloc *api.AllocationListStub) bool { return alloc.TaskGroup == group })
	if i < 0 {
		return nil
	}
	alloc, _, err := c.nomad.Allocations().Info(allocs[i].ID, nil)
	must.NoError(t, err)
	return alloc
}

// waitGroups waits until each of the groups has an allocation in that state.
func (c *cluster) waitGroups(t *testing.T, job string, want map[string]string) {
	t.Helper()
	eventually(t, startTime, fmt.Sprintf("groups of %s are %v", job, want), func() error {
		for group, status := range want {
			alloc := c.groupAlloc(t, job, group)
			if alloc == nil {
				return fmt.Errorf("%s has no allocation", group)
			}
			if alloc.ClientStatus != status {
				return fmt.Errorf("%s is %s", group, alloc.ClientStatus)
			}
		}
		return nil
	})
}

// finished waits until the job's only task has succeeded, and returns its output.
func (c *cluster) finished(t *testing.T, job string) string {
	t.Helper()
	var alloc *api.Allocation
	eventually(t, startTime, "job "+job+" ends well", func() (err error) {
		if alloc, err = c.latest(job); err != nil || alloc.ClientStatus == "complete" {
			return err
		}
		err = errNotYet(alloc.ClientStatus)
		for task, state := range alloc.TaskStates {
			err = fmt.Errorf("%s is %s: %s", task, state.State, eventTexts(state))
		}
		return err
	})
	for task := range alloc.TaskStates {
		return c.stdout(t, alloc, task)
	}
	return ""
}

// removeAll stops and purges the jobs together, and waits until their claims are gone.
func (c *cluster) removeAll(t *testing.T, jobs []string) {
	t.Helper()
	for _, job := range jobs {
		_, _, err := c.nomad.Jobs().Deregister(job, true, nil)
		must.NoError(t, err)
	}
	c.requireEmpty(t)
}
