// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/injection"
)

// devices hands host devices to the container: those that the job asks for, none of
// which may be of an NVIDIA GPU, those of device plugins, and those of the GPUs that were booked or are observed.
func (b *builder) devices() error {
	host := b.hostDevices()
	for _, d := range b.Job.Devices {
		mappings, err := mappings(d, host)
		if err != nil {
			return fmt.Errorf("config.devices: %w", err)
		}
		b.host.Devices = append(b.host.Devices, mappings...)
	}
	for _, d := range b.Task.Devices {
		b.host.Devices = append(b.host.Devices, deviceMapping(d.HostPath, d.TaskPath, d.Permissions))
	}
	b.host.Devices = append(b.host.Devices, host.gpuNodes(allocator.GPUsOf(b.Bookings))...)
	if b.Observes() {
		compute := slices.Contains(b.Settings.GPUObserver.Capabilities, config.ComputeCapability)
		b.host.Devices = append(b.host.Devices, host.allGPUNodes(compute)...)
	}
	b.host.DeviceRequests = b.deviceRequests()
	return nil
}

// mappings are the nodes that a job's entry stands for. The container finds them
// under the names that the job used.
func mappings(d config.Device, host hostDevices) ([]container.DeviceMapping, error) {
	if d.HostPath == "" {
		return nil, fmt.Errorf("host_path must name a device of the host")
	}
	if strings.Trim(d.CgroupPermissions, "rwm") != "" {
		return nil, fmt.Errorf("%s: cgroup_permissions %q may have only r, w and m", d.HostPath, d.CgroupPermissions)
	}
	at, nodes, err := host.nodes(d.HostPath)
	if err != nil {
		return nil, err
	}
	inside := d.ContainerPath
	if inside == "" {
		inside = filepath.Clean(d.HostPath)
	}
	mappings := make([]container.DeviceMapping, len(nodes))
	for i, node := range nodes {
		name := filepath.Join(inside, strings.TrimPrefix(node, at))
		mappings[i] = deviceMapping(node, name, d.CgroupPermissions)
	}
	return mappings, nil
}

func deviceMapping(host, inside, permissions string) container.DeviceMapping {
	if inside == "" {
		inside = host
	}
	if permissions == "" {
		permissions = "rwm"
	}
	return container.DeviceMapping{PathOnHost: host, PathInContainer: inside, CgroupPermissions: permissions}
}

// deviceRequests asks Docker for the task's GPUs by CDI.
func (b *builder) deviceRequests() []container.DeviceRequest {
	if b.Injection != config.ByCDI || !b.HasGPU() {
		return nil
	}
	request := container.DeviceRequest{Driver: "cdi"}
	for _, gpu := range allocator.GPUsOf(b.Bookings) {
		request.DeviceIDs = append(request.DeviceIDs, injection.CDIName(gpu))
	}
	return []container.DeviceRequest{request}
}
