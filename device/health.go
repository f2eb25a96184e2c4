// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"

	"nomad-gpu-mem/internal/nvml"
)

// defect returns why no task should get a readable GPU, "" if it may. It is called with each
// reading, also the first: resetting the GPU clears a defect, restarting the plugin does not.
//
// A GPU that replaces defective rows of its memory contains most errors, so its error count
// alone is not a defect.
func defect(g nvml.GPU) string {
	switch {
	case wantsRecovery(g):
		return recovery(g)
	case isTrue(g.RetiredPagesPending):
		return "a defective memory page waits to be retired; " + resetIt
	case g.Rows != nil && g.Rows.Failed:
		return "a defective memory row could not be replaced; the GPU needs service"
	case g.Rows != nil && g.Rows.Pending:
		return "a defective memory row waits to be replaced; " + resetIt
	case g.Rows == nil && g.UncorrectedECC != nil && *g.UncorrectedECC > 0:
		return "uncorrected memory errors since the driver was loaded; " + resetIt
	}
	return outsideFabric(g)
}

// resetIt is the advice: a reset fails while the plugin has the GPU open.
const resetIt = "reset the GPU (first: nomad-gpu-mem cordon --release)"

// wantsRecovery reports whether the driver asks for a recovery action, whichever Xid caused
// it.
func wantsRecovery(g nvml.GPU) bool { return g.Recovery != nil && *g.Recovery != nvml.NoRecovery }

func recovery(g nvml.GPU) string { return fmt.Sprintf("the driver asks for %s", *g.Recovery) }

// outsideFabric returns why a GPU is not part of its NVLink fabric, "" if it is: NVML reads
// such a GPU without error, but each CUDA program on it fails with error 802.
func outsideFabric(g nvml.GPU) string {
	switch {
	case g.Fabric == nil || *g.Fabric == nvml.FabricCompleted:
		return ""
	case *g.Fabric == nvml.FabricFailed:
		return "the registration with the NVLink fabric has failed: see the log of nvidia-fabricmanager"
	default:
		return fmt.Sprintf("the NVLink fabric is not ready (%s): start nvidia-fabricmanager, of the same version as the driver", *g.Fabric)
	}
}

func isTrue(b *bool) bool { return b != nil && *b }
