// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/simulate"
)

// jobID is the ID of a task's job.
func jobID(number int) string { return fmt.Sprintf("job-%d", number) }

// newJob returns a job that asks for what a task of the trace needs.
func newJob(number int, task simulate.Task) *api.Job {
	t := api.NewTask("task", driver).SetConfig("image", "task")
	t.Resources = &api.Resources{CPU: new(task.Request.CPU), MemoryMB: new(max(1, task.Request.MemoryMiB))}
	for _, a := range task.Request.Asks {
		t.Resources.Devices = append(t.Resources.Devices, newAsk(a))
	}
	group := api.NewTaskGroup("group", 1).AddTask(t)
	group.EphemeralDisk = &api.EphemeralDisk{SizeMB: new(1)}
	id := jobID(number)
	return api.NewServiceJob(id, id, "global", structs.JobDefaultPriority).AddDatacenter(datacenter).AddTaskGroup(group)
}

// newAsk asks for units of one GPU, all of them for a whole GPU.
func newAsk(a placement.Ask) *api.RequestedDevice {
	ask := &api.RequestedDevice{Name: allocator.Device, Count: new(uint64(units))}
	if !a.Whole {
		ask.Count = new(uint64(unitsFor(a.Units)))
	}
	if len(a.Models) > 0 {
		ask.Constraints = []*api.Constraint{
			api.NewConstraint("${device.attr.model}", structs.ConstraintSetContainsAny, strings.Join(a.Models, ",")),
		}
	}
	return ask
}

// unitsFor returns how many units hold a number of thousandths of a GPU.
func unitsFor(milli int) int { return (milli + milliPerUnit - 1) / milliPerUnit }

// submitted returns a job as Nomad's servers have it once it is submitted. A job and its
// JSON have the same fields for a client and for a server.
func submitted(job *api.Job) (*structs.Job, error) {
	job.Canonicalize()
	data, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	var stored structs.Job
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, fmt.Errorf("job %s: %w", *job.ID, err)
	}
	if stored.NodePool == "" {
		stored.NodePool = structs.NodePoolDefault
	}
	stored.Canonicalize()
	for _, group := range stored.TaskGroups {
		group.Update = nil // a deployment follows tasks that run; nothing runs here
	}
	return &stored, nil
}
