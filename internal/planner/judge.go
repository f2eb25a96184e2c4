// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/scheduler"
)

// judge decides which nodes and GPUs a group may use, with Nomad's own code, so that the
// two never differ. Ports, reserved cores, CSI volumes and distinct_property are left to
// Nomad: where they fail, Nomad takes the next node of the list.
type judge struct {
	job         *api.Job
	constraints []*structs.Constraint
	checker     *scheduler.ConstraintChecker
	drivers     *scheduler.DriverChecker
	devices     *scheduler.DeviceChecker

	nodes map[*structs.Node]string // earlier verdicts
	gpus  map[gpuVerdict]bool
}

// gpuVerdict is the key of a verdict on a GPU. It uses the block's address: pinning changes
// the block, but not which GPUs the job itself allows.
type gpuVerdict struct {
	gpu    *structs.NodeDeviceResource
	device *api.RequestedDevice
}

func newJudge(job *api.Job, group *api.TaskGroup) *judge {
	context := scheduler.NewEvalContext(nil, nil, nil, hclog.NewNullLogger())
	j := &judge{
		job:     job,
		checker: scheduler.NewConstraintChecker(context, nil), devices: scheduler.NewDeviceChecker(context),
		nodes: map[*structs.Node]string{}, gpus: map[gpuVerdict]bool{},
	}
	drivers := map[string]struct{}{}
	all := slices.Concat(job.Constraints, group.Constraints)
	for _, task := range group.Tasks {
		drivers[task.Driver] = struct{}{}
		all = append(all, task.Constraints...)
	}
	j.drivers = scheduler.NewDriverChecker(context, drivers)
	for _, c := range all {
		if c.Operand != api.ConstraintDistinctHosts && c.Operand != api.ConstraintDistinctProperty {
			j.constraints = append(j.constraints, nomadConstraint(c))
		}
	}
	return j
}

// node returns why the group must not use a node, "" if it may.
func (j *judge) node(n *structs.Node) string {
	verdict, known := j.nodes[n]
	if !known {
		verdict = j.judgeNode(n)
		j.nodes[n] = verdict
	}
	return verdict
}

func (j *judge) judgeNode(n *structs.Node) string {
	if len(j.job.Datacenters) > 0 && !n.IsInAnyDC(j.job.Datacenters) {
		return fmt.Sprintf("datacenter %s, the job requires %s", n.Datacenter, strings.Join(j.job.Datacenters, " or "))
	}
	if pool := cmp.Or(deref(j.job.NodePool), structs.NodePoolDefault); !n.IsInPool(pool) {
		return fmt.Sprintf("node pool %s, the job requires %s", n.NodePool, pool)
	}
	if !j.drivers.Feasible(n) {
		return "a task driver of the job is missing or not healthy"
	}
	for _, c := range j.constraints {
		j.checker.SetConstraints([]*structs.Constraint{c})
		if !j.checker.Feasible(n) {
			return fmt.Sprintf("constraint not met: %s", c)
		}
	}
	return ""
}

// gpu reports whether a device block allows a GPU, full or not.
func (j *judge) gpu(gpu *structs.NodeDeviceResource, device *api.RequestedDevice) bool {
	key := gpuVerdict{gpu: gpu, device: device}
	verdict, known := j.gpus[key]
	if !known {
		verdict = j.judgeGPU(gpu, device)
		j.gpus[key] = verdict
	}
	return verdict
}

func (j *judge) judgeGPU(gpu *structs.NodeDeviceResource, device *api.RequestedDevice) bool {
	// A node with only this GPU, all units healthy, and a request for none.
	probe := *gpu
	probe.Instances = []*structs.NodeDevice{{ID: "unit", Healthy: true}}
	node := &structs.Node{NodeResources: &structs.NodeResources{Devices: []*structs.NodeDeviceResource{&probe}}}
	request := &structs.RequestedDevice{Name: device.Name}
	for _, c := range device.Constraints {
		request.Constraints = append(request.Constraints, nomadConstraint(c))
	}
	task := &structs.Task{Resources: &structs.Resources{Devices: []*structs.RequestedDevice{request}}}
	j.devices.SetTaskGroup(&structs.TaskGroup{Tasks: []*structs.Task{task}})
	return j.devices.Feasible(node)
}

func nomadConstraint(c *api.Constraint) *structs.Constraint {
	operand := c.Operand
	if operand == "" {
		operand = "="
	}
	return &structs.Constraint{LTarget: c.LTarget, RTarget: c.RTarget, Operand: operand}
}

// distinctHosts reports whether no two instances of the job or group may share a node.
// Nomad uses the first such constraint, and treats an invalid boolean as true.
func distinctHosts(constraints []*api.Constraint) bool {
	at := slices.IndexFunc(constraints, func(c *api.Constraint) bool { return c.Operand == api.ConstraintDistinctHosts })
	if at < 0 {
		return false
	}
	enabled, err := strconv.ParseBool(constraints[at].RTarget)
	return err != nil || enabled
}
