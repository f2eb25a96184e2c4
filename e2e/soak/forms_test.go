// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/e2e/soak/model"
)

const (
	image   = "gpu-mem/busybox:1"
	mostAsk = 6 // units that a random job may request of one GPU
)

// form is a kind of job: its part in the churn, and the work of its tasks.
type form struct {
	model.Form
	script string
	adapt  func(*api.Job)
}

// atWork ends at once on a signal.
const atWork = `trap 'exit 0' TERM; while :; do echo at work; usleep 500000; done`

// forms are the jobs of the churn.
var forms = []form{
	{model.Form{Name: "service", Scales: true, Weight: 30}, atWork, nil},
	{model.Form{Name: "deaf service", Scales: true, Weight: 6}, `trap '' TERM; while :; do sleep 1; done`, nil},
	{model.Form{Name: "loud service", Weight: 4}, `trap 'exit 0' TERM; while :; do yes loud | head -n 2000; usleep 300000; done`, nil},
	{model.Form{Name: "group in a bridge", Weight: 6}, `trap 'exit 0' TERM; while :; do sleep 1; done`, inBridge},
	{model.Form{Name: "batch", Ends: true, Weight: 14}, `sleep $((RANDOM % 8))`, ofType("batch")},
	{model.Form{Name: "failing batch", Ends: true, Weight: 8}, `usleep 700000; exit 1`, ofType("batch")},
	{model.Form{Name: "failing service", Weight: 8}, `sleep $((RANDOM % 3)); exit 1`, nil},
	{model.Form{Name: "one-off", Ends: true, Weight: 14}, `sleep $((RANDOM % 5))`, func(job *api.Job) {
		ofType("batch")(job)
		job.ParameterizedJob = &api.ParameterizedJobConfig{}
	}},
}

func churnForms() (all []model.Form) {
	for _, f := range forms {
		all = append(all, f.Form)
	}
	return all
}

func formOf(name string) form {
	for _, f := range forms {
		if f.Name == name {
			return f
		}
	}
	panic("no form " + name)
}

func ofType(name string) func(*api.Job) { return func(job *api.Job) { job.Type = &name } }

// inBridge gives the group its own network and a second task without a slice.
func inBridge(job *api.Job) {
	group := job.TaskGroups[0]
	group.Networks = []*api.NetworkResource{{Mode: "bridge"}}
	beside := taskOf("beside", atWork, nil)
	beside.Lifecycle = &api.TaskLifecycle{Hook: api.TaskLifecycleHookPrestart, Sidecar: true}
	group.AddTask(beside)
}

// job builds the requested job. Nomad replaces its tasks whenever it is submitted again,
// because the revision is in their environment.
func (f form) job(name string, r model.Request, revision int) *api.Job {
	task := taskOf("app", f.script, r.Units)
	task.Env = map[string]string{"REVISION": fmt.Sprint(revision)}
	group := api.NewTaskGroup("g", r.Count).AddTask(task)
	group.RestartPolicy = &api.RestartPolicy{
		Attempts: ptr(3), Interval: ptr(time.Minute), Delay: ptr(time.Second), Mode: ptr("fail"),
	}
	group.ReschedulePolicy = &api.ReschedulePolicy{
		Attempts: ptr(0), Interval: ptr(time.Duration(0)), // Nomad's own for batch jobs contradict "unlimited"
		Delay: ptr(5 * time.Second), DelayFunction: ptr("constant"), Unlimited: ptr(true),
	}
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(20)}
	job := api.NewServiceJob(name, name, "global", 50).AddDatacenter("dc1").AddTaskGroup(group)
	job.Update = &api.UpdateStrategy{MaxParallel: ptr(0)} // all instances at once: units are sold again in the same plan
	if f.adapt != nil {
		f.adapt(job)
	}
	if *job.Type != "service" {
		job.Update = nil
	}
	return job
}

func taskOf(name, script string, units []uint64) *api.Task {
	task := api.NewTask(name, "gpu-docker").
		SetConfig("image", image).
		SetConfig("command", "sh").
		SetConfig("args", []string{"-c", script})
	task.Resources = &api.Resources{CPU: ptr(20), MemoryMB: ptr(16)}
	for _, count := range units {
		task.Resources.Devices = append(task.Resources.Devices, &api.RequestedDevice{Name: "nvidia/gpu-mem", Count: ptr(count)})
	}
	task.KillTimeout = ptr(2 * time.Second)
	task.LogConfig = &api.LogConfig{MaxFiles: ptr(2), MaxFileSizeMB: ptr(1)}
	return task
}

func ptr[T any](v T) *T { return &v }
