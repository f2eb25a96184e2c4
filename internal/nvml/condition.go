// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// RecoveryAction is what the driver asks an operator to do for a GPU. Drivers report it since
// R570.
type RecoveryAction int

// NoRecovery means that no action is needed.
const NoRecovery = RecoveryAction(nvml.GPU_RECOVERY_ACTION_NONE)

// String completes "the driver asks for ...".
func (a RecoveryAction) String() string {
	switch nvml.DeviceGpuRecoveryAction(a) {
	case nvml.GPU_RECOVERY_ACTION_NONE:
		return "nothing"
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "a reset of the GPU"
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT, nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:
		return "a reboot of the node"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return "the end of all programs that use the GPU through NVLink"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return "the end of all programs on the GPU, and then a reset of it"
	case nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN:
		return "a recovery of the IMEX domain"
	case nvml.GPU_RECOVERY_ACTION_BUS_RESET:
		return "a reset of the GPU's PCIe bus"
	}
	return fmt.Sprintf("recovery action %d", int(a))
}

// recovery is nil if the driver does not report it.
func (d *device) recovery() *RecoveryAction {
	return may(d, "nvmlDeviceGetFieldValues", func() (RecoveryAction, nvml.Return) {
		values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
		if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
			return 0, ret
		}
		// All possible types of the value begin with the same 32 bits.
		action := binary.NativeEndian.Uint32(values[0].Value[:4])
		return RecoveryAction(action), nvml.Return(values[0].NvmlReturn)
	})
}

// FabricState is the state of a GPU's registration with the NVLink fabric. No CUDA program can
// use the GPU before it is complete.
type FabricState int

// The states of a GPU that is part of a fabric.
const (
	FabricNotStarted FabricState = nvml.GPU_FABRIC_STATE_NOT_STARTED
	FabricInProgress FabricState = nvml.GPU_FABRIC_STATE_IN_PROGRESS
	FabricCompleted  FabricState = nvml.GPU_FABRIC_STATE_COMPLETED
	FabricFailed     FabricState = -1 // complete, but with an error
)

func (s FabricState) String() string {
	switch s {
	case FabricNotStarted:
		return "not started"
	case FabricInProgress:
		return "in progress"
	case FabricCompleted:
		return "completed"
	case FabricFailed:
		return "failed"
	}
	return fmt.Sprintf("state %d", int(s))
}

// fabric is nil for a GPU without a fabric. Drivers before R535 have only the first version of
// the call.
func (d *device) fabric() *FabricState {
	state := may(d, "nvmlDeviceGetGpuFabricInfoV", func() (FabricState, nvml.Return) {
		info, ret := d.GetGpuFabricInfoV().V2()
		return fabricState(info.State, info.Status), ret
	})
	if state == nil {
		state = may(d, "nvmlDeviceGetGpuFabricInfo", func() (FabricState, nvml.Return) {
			info, ret := d.GetGpuFabricInfo()
			return fabricState(info.State, info.Status), ret
		})
	}
	if state == nil || *state == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED {
		return nil
	}
	return state
}

// fabricState includes the status, which is valid in one state only.
func fabricState(state uint8, status uint32) FabricState {
	if state == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(status) != nvml.SUCCESS {
		return FabricFailed
	}
	return FabricState(state)
}
