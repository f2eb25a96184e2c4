// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

const (
	image  = "gpu-mem/busybox:1"
	device = "nvidia/gpu-mem"

	// startTime bounds how long a task may take to run on a busy machine:
	// Nomad alone batches node changes for up to ten seconds.
	startTime = 90 * time.Second
)

// ticker prints a number five times a second and ends at once on a signal.
const ticker = `trap 'exit 0' TERM; i=0; while :; do echo tick $i; i=$((i+1)); usleep 200000; done`

// option changes a job under construction.
type option func(*api.Job)

// gpuJob is a service of one task that holds units of one GPU.
func gpuJob(name string, units uint64, options ...option) *api.Job {
	task := api.NewTask(name, "gpu-docker").
		SetConfig("image", image).
		SetConfig("command", "sh").
		SetConfig("args", []string{"-c", ticker})
	task.Resources = &api.Resources{CPU: ptr(50), MemoryMB: ptr(32)}
	if units > 0 {
		task.Resources.Devices = []*api.RequestedDevice{{Name: device, Count: &units}}
	}
	task.KillTimeout = ptr(5 * time.Second)
	group := api.NewTaskGroup(name, 1).AddTask(task)
	group.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
	job := api.NewServiceJob(name, name, "global", 50).AddDatacenter("dc1").AddTaskGroup(group)
	for _, o := range options {
		o(job)
	}
	return job
}

// with changes the job's only task.
func with(change func(*api.Task)) option {
	return func(job *api.Job) { change(job.TaskGroups[0].Tasks[0]) }
}

// onGPU allows Nomad only that GPU.
func onGPU(uuid string) option {
	return with(func(task *api.Task) {
		for _, ask := range task.Resources.Devices {
			ask.Name = device + "/" + uuid
		}
	})
}

func ptr[T any](v T) *T { return &v }

// submit registers the job, and removes it and its claims when the test ends.
func (c *cluster) submit(t *testing.T, job *api.Job) {
	t.Helper()
	_, _, err := c.nomad.Jobs().Register(job, nil)
	must.NoError(t, err)
	t.Cleanup(func() { c.remove(t, *job.ID) })
}

// start submits the job and returns its allocation once all tasks run.
func (c *cluster) start(t *testing.T, job *api.Job) *api.Allocation {
	t.Helper()
	c.submit(t, job)
	return c.waitRunning(t, *job.ID)
}

// waitRunning returns the job's running allocation.
func (c *cluster) waitRunning(t *testing.T, job string) *api.Allocation {
	t.Helper()
	var found *api.Allocation
	eventually(t, startTime, "job "+job+" runs", func() error {
		alloc, err := c.latest(job)
		if err != nil {
			return err
		}
		for name, state := range alloc.TaskStates {
			if state.State != "running" {
				return fmt.Errorf("task %s is %s: %s", name, state.State, eventTexts(state))
			}
		}
		if len(alloc.TaskStates) == 0 {
			return fmt.Errorf("allocation %s is %s", alloc.ID, alloc.ClientStatus)
		}
		found = alloc
		return nil
	})
	return found
}

// latest returns the job's newest allocation.
func (c *cluster) latest(job string) (*api.Allocation, error) {
	allocs, _, err := c.nomad.Jobs().Allocations(job, true, nil)
	if err != nil {
		return nil, err
	}
	var newest *api.AllocationListStub
	for _, alloc := range allocs {
		if newest == nil || alloc.CreateIndex > newest.CreateIndex {
			newest = alloc
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("job %s has no allocation", job)
	}
	alloc, _, err := c.nomad.Allocations().Info(newest.ID, nil)
	return alloc, err
}

// remove stops and purges the job and waits until its claims are gone.
func (c *cluster) remove(t *testing.T, job string) {
	t.Helper()
	_, _, err := c.nomad.Jobs().Deregister(job, true, nil)
	must.NoError(t, err)
	eventually(t, startTime, "job "+job+" holds nothing", func() error {
		for _, held := range c.claims(t) {
			if held.Job == job {
				return fmt.Errorf("%s holds units %s of %s", held.Owner, held.Units, held.gpu)
			}
		}
		return nil
	})
}

// waitEvent waits until the job's task has an event that contains the text.
func (c *cluster) waitEvent(t *testing.T, job, text string) {
	t.Helper()
	eventually(t, startTime, fmt.Sprintf("job %s has an event %q", job, text), func() error {
		alloc, err := c.latest(job)
		if err != nil {
			return err
		}
		var all []string
		for _, state := range alloc.TaskStates {
			all = append(all, eventTexts(state))
		}
		if !strings.Contains(strings.Join(all, "\n"), text) {
			return fmt.Errorf("events:\n%s", strings.Join(all, "\n"))
		}
		return nil
	})
}

func eventTexts(state *api.TaskState) string {
	var texts []string
	for _, event := range state.Events {
		texts = append(texts, event.Type+": "+event.DisplayMessage)
	}
	return strings.Join(texts, "\n")
}

// stdout returns the task's output so far, from Nomad's log files, which can be
// read while the agent is stopped.
func (c *cluster) stdout(t *testing.T, alloc *api.Allocation, task string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.run, "nomad/alloc", alloc.ID, "alloc/logs", task+".stdout.*"))
	must.NoError(t, err)
	if len(files) == 0 {
		return ""
	}
	must.Len(t, 1, files, must.Sprint("a test writes too little for a second file"))
	text, err := os.ReadFile(files[0])
	must.NoError(t, err)
	return string(text)
}

// statusOf returns the HTTP status of an error of Nomad, 0 for any other error.
func statusOf(err error) int {
	answer, ok := errors.AsType[api.UnexpectedResponseError](err)
	if !ok {
		return 0
	}
	return answer.StatusCode()
}
