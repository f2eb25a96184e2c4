// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/simulate"
)

// newJob asks Nomad for what a task of the trace wants.
func newJob(number int, task simulate.Task) *structs.Job {
	t := &structs.Task{
		Name:      "task",
		Driver:    driver,
		Config:    map[string]any{"image": "task"},
		LogConfig: structs.DefaultLogConfig(),
		Resources: &structs.Resources{CPU: task.Request.CPU, MemoryMB: max(1, task.Request.MemoryMiB)},
	}
	for _, a := range task.Request.Asks {
		t.Resources.Devices = append(t.Resources.Devices, newAsk(a))
	}
	job := &structs.Job{
		ID:          fmt.Sprintf("job-%d", number),
		Name:        fmt.Sprintf("job-%d", number),
		Namespace:   structs.DefaultNamespace,
		Region:      "global",
		Type:        structs.JobTypeService,
		Priority:    structs.JobDefaultPriority,
		Datacenters: []string{datacenter},
		NodePool:    structs.NodePoolDefault,
		TaskGroups: []*structs.TaskGroup{{
			Name:          "group",
			Count:         1,
			EphemeralDisk: &structs.EphemeralDisk{SizeMB: 1},
			Tasks:         []*structs.Task{t},
		}},
	}
	job.Canonicalize()
	return job
}

// newAsk takes units of one GPU, all of them for a whole one.
func newAsk(a placement.Ask) *structs.RequestedDevice {
	ask := &structs.RequestedDevice{Name: vendor + "/" + deviceType, Count: units}
	if !a.Whole {
		ask.Count = uint64((a.Units + milliPerUnit - 1) / milliPerUnit)
	}
	if len(a.Models) > 0 {
		ask.Constraints = structs.Constraints{{
			LTarget: "${device.attr.model}",
			Operand: structs.ConstraintSetContainsAny,
			RTarget: strings.Join(a.Models, ","),
		}}
	}
	return ask
}
