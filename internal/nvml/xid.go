// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"nomad-gpu-mem/internal/pause"
)

// Xid is an error event of a GPU from the driver. NVIDIA's "Xid Errors" lists the codes.
type Xid struct {
	UUID string // of the physical GPU
	Code uint64

	// GPUInstance is the MIG GPU instance that it is about, or nil if it is
	// about the whole GPU.
	GPUInstance *int
}

func (x Xid) String() string { return fmt.Sprintf("Xid %d", x.Code) }

// waitXid is how long one call waits for an event. It bounds how long the end of a session
// takes.
const waitXid = time.Second

// watchXids puts the GPUs' Xids into the inbox until the probe's context ends, and calls
// registered as soon as none can be missed. It returns an error if NVML does not report the
// Xids of some GPU.
func watchXids(p *probe, gpus []string, inbox *xidInbox, registered func()) error {
	set, err := query(p, "nvmlEventSetCreate", p.library.EventSetCreate)
	if err != nil {
		return err
	}
	if p.library.has("nvmlEventSetFree") {
		defer func() { _ = p.library.EventSetFree(set) }()
	}
	watched := map[nvml.Device]string{}
	var refused error
	for _, uuid := range gpus {
		handle, err := register(p, set, uuid)
		if err != nil {
			refused = errors.Join(refused, fmt.Errorf("GPU %s: %w", uuid, err))
			continue
		}
		watched[handle] = uuid
	}
	if p.ctx.Err() == nil {
		inbox.refuse(refused)
	}
	registered()
	for len(watched) > 0 && p.ctx.Err() == nil {
		event, err := query(p, "nvmlEventSetWait_v2", func() (nvml.EventData, nvml.Return) {
			return p.library.EventSetWait(set, uint32(waitXid.Milliseconds()))
		})
		switch {
		case err == nil && event.EventType == nvml.EventTypeXidCriticalError && event.EventData != 0:
			inbox.put(Xid{UUID: watched[event.Device], Code: event.EventData, GPUInstance: gpuInstance(event)})
		case err == nil, hasCode(err, nvml.ERROR_TIMEOUT):
		case hasCode(err, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_UNINITIALIZED):
			return err
		default:
			_ = pause.For(p.ctx, waitXid) // a lost GPU makes every call return at once
		}
	}
	return refused
}

// register subscribes to a GPU's Xids, if it supports any.
func register(p *probe, set nvml.EventSet, uuid string) (nvml.Device, error) {
	handle, err := query(p, "nvmlDeviceGetHandleByUUID", func() (nvml.Device, nvml.Return) {
		return p.library.DeviceGetHandleByUUID(uuid)
	})
	if err != nil {
		return nil, err
	}
	_, err = query(p, "nvmlDeviceRegisterEvents", func() (struct{}, nvml.Return) {
		return struct{}{}, handle.RegisterEvents(nvml.EventTypeXidCriticalError, set)
	})
	return handle, err
}

// gpuInstance is nil for NVML's value with all bits set.
func gpuInstance(event nvml.EventData) *int {
	if event.GpuInstanceId == ^uint32(0) {
		return nil
	}
	id := int(event.GpuInstanceId)
	return &id
}
