package planner_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	attributes "github.com/hashicorp/nomad/plugins/shared/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
)

// gpuSpec is a GPU of a simulated node.
type gpuSpec struct {
	model   string
	units   int
	unitMiB int
	sick    []int // units that are not healthy
}

func a10() gpuSpec  { return gpuSpec{model: "NVIDIA A10", units: 22, unitMiB: 1024} }
func h100() gpuSpec { return gpuSpec{model: "NVIDIA H100", units: 79, unitMiB: 1024} }

// nodeID and uuid name a simulated node and its GPUs.
func nodeID(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

func uuid(node, index int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-%012d", node, index) }

// newNode is a ready node with the device groups that the plugin makes.
func newNode(number int, gpus ...gpuSpec) *structs.Node {
	n := &structs.Node{
		ID: nodeID(number), SecretID: nodeID(number), Name: fmt.Sprintf("node-%d", number), Datacenter: "dc1", NodePool: "default",
		Status: structs.NodeStatusReady, SchedulingEligibility: structs.NodeSchedulingEligible,
		Attributes: map[string]string{"kernel.name": "linux", "driver.gpu-docker": "1"},
		Meta:       map[string]string{"rack": fmt.Sprintf("r%d", number%2)},
		Drivers:    map[string]*structs.DriverInfo{"gpu-docker": {Detected: true, Healthy: true}},
		NodeResources: &structs.NodeResources{
			Cpu: structs.NodeCpuResources{CpuShares: 32000, TotalCpuCores: 32}, Memory: structs.NodeMemoryResources{MemoryMB: 262144},
			Disk:     structs.NodeDiskResources{DiskMB: 1 << 20},
			Networks: []*structs.NetworkResource{{Mode: "host", Device: "eth0", CIDR: "192.0.2.1/32", IP: "192.0.2.1", MBits: 1000}},
		},
		ReservedResources: &structs.NodeReservedResources{},
	}
	for index, g := range gpus {
		n.NodeResources.Devices = append(n.NodeResources.Devices, newGPU(uuid(number, index), index, g))
	}
	if err := n.ComputeClass(); err != nil {
		panic(err)
	}
	return n
}

func newGPU(id string, index int, g gpuSpec) *structs.NodeDeviceResource {
	d := &structs.NodeDeviceResource{Vendor: "nvidia", Type: "gpu-mem", Name: id, Attributes: map[string]*attributes.Attribute{
		"model":       attributes.NewStringAttribute(g.model),
		"index":       attributes.NewIntAttribute(int64(index), ""),
		"units":       attributes.NewIntAttribute(int64(g.units), ""),
		"memory_unit": attributes.NewIntAttribute(int64(g.unitMiB), attributes.UnitMiB),
		"memory":      attributes.NewIntAttribute(int64(g.units*g.unitMiB), attributes.UnitMiB),
	}}
	for unit := range g.units {
		d.Instances = append(d.Instances, &structs.NodeDevice{ID: allocator.UnitID(allocator.GPUID(id), unit), Healthy: true})
	}
	for _, unit := range g.sick {
		d.Instances[unit].Healthy = false
	}
	return d
}

// nodes is so many nodes that are all alike.
func nodes(count int, gpus ...gpuSpec) []*structs.Node {
	var all []*structs.Node
	for number := range count {
		all = append(all, newNode(number, gpus...))
	}
	return all
}

// option changes a job under construction.
type option func(*api.Job)

// newJob is a service of one group with one task that asks for so many units.
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
	return &api.RequestedDevice{Name: planner.Device, Count: ptr(uint64(units))}
}

func count(n int) option { return func(job *api.Job) { job.TaskGroups[0].Count = &n } }

func kind(name string) option { return func(job *api.Job) { job.Type = &name } }

func meta(key, value string) option {
	return func(job *api.Job) { job.TaskGroups[0].Tasks[0].SetMeta(key, value) }
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

// plan makes a plan that must not fail.
func plan(t *testing.T, job *api.Job, cluster planner.Cluster, options planner.Options) *planner.Plan {
	t.Helper()
	p, err := planner.Make(job, cluster, options)
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
