// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"fmt"
	"strconv"

	"github.com/hashicorp/nomad/nomad/structs"
	device "github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
)

// The trace shares GPUs in hundredths, though it counts thousandths. Nomad keeps
// an object for every unit, so they are hundredths here.
const (
	units        = 100
	milliPerUnit = 10
)

const (
	driver     = "gpu-docker"
	datacenter = "dc1"
)

// uuid returns an ID in the form that Nomad requires. The scheduler shuffles nodes by the
// ID of the evaluation.
func uuid(first, last uint64) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", first, last) }

// newNode returns a node with the device plugin's groups.
func newNode(id string, n placement.Node) (*structs.Node, error) {
	node := &structs.Node{
		ID:         id,
		SecretID:   id, // required by the store
		Name:       n.Name,
		Datacenter: datacenter,
		NodePool:   structs.NodePoolDefault,
		Attributes: map[string]string{"kernel.name": "linux", "driver." + driver: "1"},
		Drivers:    map[string]*structs.DriverInfo{driver: {Detected: true, Healthy: true}},
		NodeResources: &structs.NodeResources{
			Cpu:    structs.NodeCpuResources{CpuShares: int64(n.CPU)},
			Memory: structs.NodeMemoryResources{MemoryMB: int64(n.MemoryMiB)},
			Disk:   structs.NodeDiskResources{DiskMB: 1 << 30},
			// Every job without a network block needs the host's.
			Networks: structs.Networks{{Mode: "host", Device: "eth0"}},
		},
		ReservedResources:     &structs.NodeReservedResources{},
		Status:                structs.NodeStatusReady,
		SchedulingEligibility: structs.NodeSchedulingEligible,
	}
	for index, g := range n.GPUs {
		node.NodeResources.Devices = append(node.NodeResources.Devices, newGroup(g, index))
	}
	if err := node.ComputeClass(); err != nil {
		return nil, err
	}
	return node, nil
}

// newGroup returns a GPU as the device plugin offers it.
func newGroup(g placement.GPU, index int) *structs.NodeDeviceResource {
	group := &structs.NodeDeviceResource{
		Vendor: allocator.DeviceVendor, Type: allocator.DeviceType, Name: g.ID,
		Attributes: map[string]*device.Attribute{
			"uuid":          device.NewStringAttribute(g.ID),
			"model":         device.NewStringAttribute(g.Model),
			"index":         device.NewIntAttribute(int64(index), ""),
			"units":         device.NewIntAttribute(units, ""),
			"memory_unit":   device.NewIntAttribute(int64(g.UnitMiB*milliPerUnit), device.UnitMiB),
			"healthy_units": device.NewIntAttribute(units, ""),
		},
	}
	for unit := range units {
		group.Instances = append(group.Instances, &structs.NodeDevice{ID: g.ID + "::" + strconv.Itoa(unit), Healthy: true})
	}
	return group
}
