// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"github.com/docker/docker/api/types/container"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
)

// CDIKind is what the device names of GPUs begin with, as nvidia-ctk writes them.
const CDIKind = "nvidia.com/gpu"

// CDIName is the CDI device of a GPU or a MIG instance. Names by index are not used: another GPU can have the index after a
// reboot.
func CDIName(gpu allocator.GPUID) string { return CDIKind + "=" + string(gpu) }

// deviceRequests asks Docker for the task's GPUs by CDI.
func (b *builder) deviceRequests() []container.DeviceRequest {
	if b.Injection != config.ByCDI || !b.HasGPU() {
		return nil
	}
	request := container.DeviceRequest{Driver: "cdi"}
	for _, gpu := range allocator.GPUsOf(b.Bookings) {
		request.DeviceIDs = append(request.DeviceIDs, CDIName(gpu))
	}
	return []container.DeviceRequest{request}
}
