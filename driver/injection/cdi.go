// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package injection

import "nomad-gpu-mem/allocator"

// cdiKind is what the device names of GPUs begin with, as nvidia-ctk writes them.
const cdiKind = "nvidia.com/gpu"

// CDIName is the CDI device of a GPU or a MIG instance. Names by index are not used: another GPU can have the index after a
// reboot.
func CDIName(gpu allocator.GPUID) string { return cdiKind + "=" + string(gpu) }
