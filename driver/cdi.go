// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"

	"github.com/docker/docker/api/types/container"
)

// cdiKind is what the device names of GPUs begin with, as nvidia-ctk writes them.
const cdiKind = "nvidia.com/gpu"

// cdiName is the CDI device of a GPU or a MIG instance. Names by index are not used: another GPU can have the index after a
// reboot.
func cdiName(gpu allocator.GPUID) string { return cdiKind + "=" + string(gpu) }

// deviceRequests asks Docker for the task's GPUs by CDI.
func (b *builder) deviceRequests() []container.DeviceRequest {
	if b.injection != config.ByCDI || !b.hasGPU() {
		return nil
	}
	request := container.DeviceRequest{Driver: "cdi"}
	for _, gpu := range allocator.GPUsOf(b.bookings) {
		request.DeviceIDs = append(request.DeviceIDs, cdiName(gpu))
	}
	return []container.DeviceRequest{request}
}
