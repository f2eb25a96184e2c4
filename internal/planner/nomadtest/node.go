// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomadtest

import (
	"fmt"

	"github.com/hashicorp/nomad/nomad/structs"
	attributes "github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
)

// GPU is a GPU of a node.
type GPU struct {
	Model   string
	Units   int
	UnitMiB int
	Sick    []int // unhealthy units
}

// NodeID is the ID of a node.
func NodeID(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

// UUID is the UUID of a node's GPU.
func UUID(node, index int) string { return fmt.Sprintf("GPU-%08d-0000-4000-8000-%012d", node, index) }

// Node returns a ready node with device groups as the device plugin fingerprints them.
func Node(number int, gpus ...GPU) *structs.Node {
	n := &structs.Node{
		ID: NodeID(number), SecretID: NodeID(number), Name: fmt.Sprintf("node-%d", number), Datacenter: "dc1", NodePool: "default",
		Status: structs.NodeStatusReady, SchedulingEligibility: structs.NodeSchedulingEligible,
		Attributes: map[string]string{"kernel.name": "linux", "driver.gpu-docker": "1"},
		Meta:       map[string]string{"rack": fmt.Sprintf("r%d", number%2)},
		Drivers:    map[string]*structs.DriverInfo{"gpu-docker": {Detected: true, Healthy: true}},
		NodeResources: &structs.NodeResources{
			Cpu:      structs.NodeCpuResources{CpuShares: 32000, TotalCpuCores: 32},
			Memory:   structs.NodeMemoryResources{MemoryMB: 262144},
			Disk:     structs.NodeDiskResources{DiskMB: 1 << 20},
			Networks: []*structs.NetworkResource{{Mode: "host", Device: "eth0", CIDR: "192.0.2.1/32", IP: "192.0.2.1", MBits: 1000}},
		},
		ReservedResources: &structs.NodeReservedResources{},
	}
	for index, g := range gpus {
		n.NodeResources.Devices = append(n.NodeResources.Devices, device(UUID(number, index), index, g))
	}
	if err := n.ComputeClass(); err != nil {
		panic(err)
	}
	return n
}

func device(id string, index int, g GPU) *structs.NodeDeviceResource {
	d := &structs.NodeDeviceResource{Vendor: allocator.DeviceVendor, Type: allocator.DeviceType, Name: id, Attributes: map[string]*attributes.Attribute{
		"model":       attributes.NewStringAttribute(g.Model),
		"index":       attributes.NewIntAttribute(int64(index), ""),
		"units":       attributes.NewIntAttribute(int64(g.Units), ""),
		"memory_unit": attributes.NewIntAttribute(int64(g.UnitMiB), attributes.UnitMiB),
		"memory":      attributes.NewIntAttribute(int64(g.Units*g.UnitMiB), attributes.UnitMiB),
	}}
	for unit := range g.Units {
		d.Instances = append(d.Instances, &structs.NodeDevice{ID: allocator.UnitID(allocator.GPUID(id), unit), Healthy: true})
	}
	for _, unit := range g.Sick {
		d.Instances[unit].Healthy = false
	}
	return d
}

// Nodes returns a number of equal nodes.
func Nodes(count int, gpus ...GPU) []*structs.Node {
	var all []*structs.Node
	for number := range count {
		all = append(all, Node(number, gpus...))
	}
	return all
}
