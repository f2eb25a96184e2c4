// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/nomadtest"
)

type gpuSpec = nomadtest.GPU

func a10() gpuSpec  { return gpuSpec{Model: "NVIDIA A10", Units: 22, UnitMiB: 1024} }
func h100() gpuSpec { return gpuSpec{Model: "NVIDIA H100", Units: 79, UnitMiB: 1024} }

// option changes a job under construction.
type option func(*api.Job)

// newJob is a service of one group with one task that asks for a number of units.
func newJob(name string, units int, options ...option) *api.Job {
	task := api.NewTask("main", "gpu-docker")
	task.Resources = &api.Resources{CPU: ptr(100), MemoryMB: ptr(256)}
	task.Resources.Devices = []*api.RequestedDevice{ask(units)}
	job := api.NewServiceJob(name, name, "global", 50).AddDatacenter("dc1")
	job.AddTaskGroup(api.NewTaskGroup("group", 1).AddTask(task))
	job.Namespace, job.NodePool = ptr("default"), ptr("default")
	for _, o := range options {
		o(job)
	}
	return job
}

func ask(units int) *api.RequestedDevice {
	return &api.RequestedDevice{Name: allocator.Device, Count: ptr(uint64(units))}
}

func count(n int) option { return func(job *api.Job) { job.TaskGroups[0].Count = &n } }

func kind(name string) option { return func(job *api.Job) { job.Type = &name } }

func meta(key, value string) option {
	return func(job *api.Job) { job.TaskGroups[0].Tasks[0].SetMeta(key, value) }
}

// templates make a job periodic or parameterized.
func templates() map[string]option {
	return map[string]option{
		"parameterized": func(job *api.Job) { job.ParameterizedJob = &api.ParameterizedJobConfig{} },
		"periodic":      func(job *api.Job) { job.AddPeriodicConfig(&api.PeriodicConfig{Spec: ptr("@daily")}) },
	}
}

// asking replaces the task's device blocks.
func asking(asks ...*api.RequestedDevice) option {
	return func(job *api.Job) { job.TaskGroups[0].Tasks[0].Resources.Devices = asks }
}

func constrained(target, operand, value string) option {
	return func(job *api.Job) { job.Constrain(api.NewConstraint(target, operand, value)) }
}

func ptr[T any](v T) *T { return &v }

func policy(name string) placement.Policy {
	p, err := placement.PolicyNamed(name)
	if err != nil {
		panic(err)
	}
	return p
}

func shortlist() planner.Options {
	return planner.Options{Policy: policy("best-fit"), Pin: planner.Shortlist}
}

// plan plans a job; it must not fail.
func plan(t *testing.T, job *api.Job, cluster planner.Cluster, options planner.Options) *planner.Plan {
	t.Helper()
	p, err := planner.PlanJob(job, cluster, options)
	must.NoError(t, err)
	return p
}

// running is the cluster after Nomad did as planned.
func running(cluster planner.Cluster, p *planner.Plan) planner.Cluster {
	cluster.Registered = p.Job
	for _, group := range p.Groups {
		for i, place := range group.Places {
			cluster.Allocs = append(cluster.Allocs, newAlloc(fmt.Sprintf("%s-%s-%d", p.ID, group.Name, i), p.ID, group.Name, place))
		}
	}
	return cluster
}

// newAlloc is an allocation that runs at a place, with the first units there.
func newAlloc(id, job, group string, place planner.Place) *structs.AllocListStub {
	tasks := map[string]*structs.AllocatedTaskResources{}
	for _, s := range place.Slices {
		if tasks[s.Task] == nil {
			tasks[s.Task] = &structs.AllocatedTaskResources{
				Cpu: structs.AllocatedCpuResources{CpuShares: 100}, Memory: structs.AllocatedMemoryResources{MemoryMB: 256},
			}
		}
		d := &structs.AllocatedDeviceResource{Vendor: "nvidia", Type: "gpu-mem", Name: s.GPU}
		for unit := range s.Units {
			d.DeviceIDs = append(d.DeviceIDs, allocator.UnitID(allocator.GPUID(s.GPU), s.Of-s.Left-s.Units+unit))
		}
		tasks[s.Task].Devices = append(tasks[s.Task].Devices, d)
	}
	return &structs.AllocListStub{
		ID: id, Namespace: "default", JobID: job, TaskGroup: group, NodeID: place.Node, NodeName: place.NodeName,
		DesiredStatus: structs.AllocDesiredStatusRun, ClientStatus: structs.AllocClientStatusRunning,
		AllocatedResources: &structs.AllocatedResources{Tasks: tasks},
	}
}
