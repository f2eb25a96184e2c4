// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
)

// Cluster is the state of Nomad and the allocation table at one moment.
type Cluster struct {
	Nodes      []*structs.Node              // in full
	Allocs     []*structs.AllocListStub     // of all namespaces, with resources
	Table      *allocator.Snapshot          // all claims and reservations
	Profiles   map[string]allocator.Profile // those that the job names and that exist
	Registered *api.Job                     // the job as Nomad has it, nil if it is new
	Queue      string                       // kind of the batch queue that the job passes through, "" if none
	NodeLimit  int                          // how many nodes Nomad scores for a job with affinities, 0 if unknown
}

// memory is the half-life of past demand: an ask of a week ago counts half.
const memory = 7 * 24 * time.Hour

// demand returns what tasks ask for in this cluster, from the allocations that Nomad
// still has.
func (c Cluster) demand() []placement.Class {
	history := placement.NewHistory(memory)
	for _, alloc := range c.Allocs {
		request := placement.Request{}
		request.CPU, request.MemoryMiB = used(alloc)
		for _, d := range slicesOf(alloc) {
			request.Asks = append(request.Asks, placement.Ask{Units: len(d.DeviceIDs)})
		}
		if len(request.Asks) > 0 {
			history.Observe(request, time.Unix(0, alloc.CreateTime))
		}
	}
	return history.Classes()
}

// holds reports whether an allocation still holds its resources.
func holds(alloc *structs.AllocListStub) bool {
	switch alloc.ClientStatus {
	case structs.AllocClientStatusComplete, structs.AllocClientStatusFailed, structs.AllocClientStatusLost:
		return false
	default:
		return true
	}
}

// lives reports whether an allocation runs or will run, and is not to be stopped.
func lives(alloc *structs.AllocListStub) bool {
	return holds(alloc) && alloc.DesiredStatus == structs.AllocDesiredStatusRun
}

// isReplaced reports whether an allocation is on a disconnected node and another one was
// started in its place. It compares names, since Nomad's NextAllocation may be missing. If
// the node reconnects, Nomad stops one of the two: the allocation no longer counts as an
// instance, but holds its resources until then.
func (c Cluster) isReplaced(alloc *structs.AllocListStub) bool {
	if !lives(alloc) || alloc.ClientStatus != structs.AllocClientStatusUnknown {
		return false
	}
	return slices.ContainsFunc(c.Allocs, func(other *structs.AllocListStub) bool {
		return other.Namespace == alloc.Namespace && other.JobID == alloc.JobID && other.Name == alloc.Name &&
			other.CreateIndex > alloc.CreateIndex && lives(other)
	})
}

// used returns an allocation's CPU in MHz and host memory in MiB.
func used(alloc *structs.AllocListStub) (cpu, memoryMiB int) {
	if alloc.AllocatedResources == nil {
		return 0, 0
	}
	flat := alloc.AllocatedResources.Comparable().Flattened
	return int(flat.Cpu.CpuShares), int(flat.Memory.MemoryMB)
}

// slicesOf returns the units that Nomad booked for an allocation.
func slicesOf(alloc *structs.AllocListStub) []*structs.AllocatedDeviceResource {
	var found []*structs.AllocatedDeviceResource
	if alloc.AllocatedResources == nil {
		return nil
	}
	for _, task := range alloc.AllocatedResources.Tasks {
		for _, d := range task.Devices {
			if isOurs(d.Vendor + "/" + d.Type) {
				found = append(found, d)
			}
		}
	}
	return found
}

// picture builds the nodes that placement decides on. The job's own reservations count as
// free, and so do the units of allocations that it will replace: Nomad books these again in
// the same plan.
type picture struct {
	cluster Cluster
	job     *api.Job

	freed map[string]bool                     // IDs of allocations that a new version of the job replaces
	busy  map[string][]*structs.AllocListStub // by node
	table map[allocator.GPUID]allocator.GPU
	hosts map[allocator.NodeName]allocator.NodeState // what device plugins reported, by host name
}

func newPicture(cluster Cluster, job *api.Job, freed map[string]bool) *picture {
	p := &picture{
		cluster: cluster, job: job, freed: freed,
		busy:  map[string][]*structs.AllocListStub{},
		table: map[allocator.GPUID]allocator.GPU{},
		hosts: map[allocator.NodeName]allocator.NodeState{},
	}
	for _, alloc := range cluster.Allocs {
		if holds(alloc) && !freed[alloc.ID] {
			p.busy[alloc.NodeID] = append(p.busy[alloc.NodeID], alloc)
		}
	}
	if cluster.Table == nil {
		return p
	}
	for _, gpu := range cluster.Table.GPUs {
		p.table[gpu.ID] = gpu
	}
	for _, node := range cluster.Table.Nodes {
		p.hosts[node.Name] = node
	}
	return p
}

// node returns a node as placement sees it.
func (p *picture) node(n *structs.Node) placement.Node {
	spec := placement.Node{ID: n.ID, Name: n.Name, Data: n}
	if !n.Ready() {
		spec.Out = "not ready, draining or not eligible"
	}
	if n.NodeResources == nil {
		return spec
	}
	all := n.ComparableResources()
	all.Subtract(n.ComparableReservedResources())
	spec.CPU, spec.MemoryMiB = int(all.Flattened.Cpu.CpuShares), int(all.Flattened.Memory.MemoryMB)
	booked := map[allocator.GPUID]allocator.UnitSet{}
	for _, alloc := range p.busy[n.ID] {
		cpu, memoryMiB := used(alloc)
		spec.CPU -= cpu
		spec.MemoryMiB -= memoryMiB
		for _, d := range slicesOf(alloc) {
			gpu := allocator.GPUID(d.Name)
			booked[gpu] = booked[gpu].Union(unitsIn(d.DeviceIDs))
		}
	}
	spec.CPU, spec.MemoryMiB = max(0, spec.CPU), max(0, spec.MemoryMiB)
	for _, d := range n.NodeResources.Devices {
		if isOurs(d.Vendor + "/" + d.Type) {
			spec.GPUs = append(spec.GPUs, p.gpu(d, booked[allocator.GPUID(d.Name)]))
		}
	}
	return spec
}

// gpu returns a GPU as placement sees it.
func (p *picture) gpu(d *structs.NodeDeviceResource, booked allocator.UnitSet) placement.GPU {
	known := p.table[allocator.GPUID(d.Name)]
	spec := &gpuData{device: d, avoid: booked.Union(unhealthy(d))}
	g := placement.GPU{
		ID: d.Name, Model: textOf(d, "model"), UnitMiB: numberOf(d, "memory_unit"), Units: len(d.Instances), Data: spec,
	}
	if known.State.UnitMiB == uint64(g.UnitMiB) { // the table knows some seconds before Nomad does
		spec.avoid = spec.avoid.Union(known.State.Unhealthy)
	}
	taken := spec.avoid
	for _, claim := range known.Claims() {
		own := claim.State == allocator.Reserved && claim.IsOf(*p.job.Namespace, *p.job.ID)
		if !own && !p.freed[claim.Alloc] {
			taken = taken.Union(claim.Units)
		}
	}
	g.Free = max(0, g.Units-len(taken))
	switch {
	case g.UnitMiB == 0:
		g.Out = "its device plugin does not report the size of a unit"
	case known.Cordon != nil:
		g.Out = "cordoned: " + known.Cordon.Reason
	case known.Ledger == nil && known.ID != "":
		g.Out = "its claims cannot be read"
	case len(known.Claims()) > 0 && known.Ledger.UnitMiB != uint64(g.UnitMiB):
		g.Out = "has claims in units of another size"
	case p.isDead(known.State.Node):
		g.Out = "its device plugin has lost its lease"
	default:
		g.Out = known.Withdrawn(p.hosts[known.State.Node])
	}
	return g
}

// isDead reports whether the device plugin on a host has lost its lease.
func (p *picture) isDead(host allocator.NodeName) bool {
	node, known := p.hosts[host]
	return known && p.cluster.Table.Liveness(node) == allocator.Dead
}

// gpuData is what a placement.GPU carries.
type gpuData struct {
	device *structs.NodeDeviceResource
	avoid  allocator.UnitSet // units that no reservation may take: unhealthy, or booked by Nomad
}

func unhealthy(d *structs.NodeDeviceResource) allocator.UnitSet {
	var ids []string
	for _, instance := range d.Instances {
		if !instance.Healthy {
			ids = append(ids, instance.ID)
		}
	}
	return unitsIn(ids)
}

// unitsIn returns the numbers of unit IDs, and skips invalid IDs.
func unitsIn(ids []string) allocator.UnitSet {
	var units []int
	for _, id := range ids {
		if _, unit, err := allocator.ParseUnitID(id); err == nil {
			units = append(units, unit)
		}
	}
	return allocator.NewUnitSet(units...)
}

func textOf(d *structs.NodeDeviceResource, name string) string {
	if a := d.Attributes[name]; a != nil && a.String != nil {
		return *a.String
	}
	return ""
}

func numberOf(d *structs.NodeDeviceResource, name string) int {
	if a := d.Attributes[name]; a != nil && a.Int != nil {
		return int(*a.Int)
	}
	return 0
}
