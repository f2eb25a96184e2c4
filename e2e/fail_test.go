// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// A start that fails says why in the task's events and leaves neither a claim
// nor a container.
func TestFailedStartLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*api.Task)
		says   string
	}{
		{"image", func(task *api.Task) { task.SetConfig("image", "gpu-mem/absent:1") }, "gpu-mem/absent:1"},
		{"volume", func(task *api.Task) { task.SetConfig("volumes", []string{"/no-target"}) }, "/no-target"},
		{"mount", func(task *api.Task) {
			task.SetConfig("mount", []map[string]any{{"type": "bind", "source": "/no/such/folder", "target": "/data"}})
		}, "/no/such/folder"},
		{"command", func(task *api.Task) { task.SetConfig("command", "/no/such/program") }, "/no/such/program"},
		{"env", func(task *api.Task) {
			task.Env = map[string]string{"BAD": "a\x00b"}
		}, "BAD"},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "fail-" + test.name
			shared.submit(t, gpuJob(name, 4, with(test.change)))
			shared.requireFailed(t, name, test.says)
		})
	}
}

// Without NVIDIA's runtime a task with a slice cannot start: the event names
// the runtime and what to do. Tasks without a slice are not affected.
func TestMissingRuntime(t *testing.T) {
	c, err := startCluster(twoGPUs(), "GPU_MEM_NVIDIA_RUNTIME=nvidia-absent")
	if c != nil {
		t.Cleanup(func() { must.NoError(t, c.down()) })
	}
	must.NoError(t, err)
	c.deviceGroups(t, 2)

	c.submit(t, gpuJob("no-runtime", 4))
	c.requireFailed(t, "no-runtime", "nvidia-absent")
	c.start(t, gpuJob("no-gpu", 0))
}

// requireFailed waits until the job failed with such an event, and verifies
// that it left nothing.
func (c *cluster) requireFailed(t *testing.T, job, says string) {
	t.Helper()
	c.waitEvent(t, job, says)
	eventually(t, startTime, "the allocation failed", func() error {
		alloc, err := c.latest(job)
		if err == nil && alloc.ClientStatus != "failed" {
			err = errNotYet(alloc.ClientStatus)
		}
		return err
	})
	alloc, err := c.latest(job)
	must.NoError(t, err)
	must.SliceEmpty(t, c.containers(t, alloc.ID))
	for _, held := range c.claims(t) {
		must.NotEq(t, job, held.Job)
	}
}

type errNotYet string

func (e errNotYet) Error() string { return "it is " + strings.ToLower(string(e)) }
