// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"slices"

	"nomad-gpu-mem/internal/nvml"
)

// sharesMemory reports whether a MIG device is one of several compute instances of a GPU
// instance. NVML reports the memory of the whole GPU instance for each of them: offering each
// would sell that memory several times, and the driver lets any of them use all of it.
func sharesMemory(g nvml.GPU, s *nvml.Snapshot) bool {
	if g.Parent == "" || g.GPUInstance == nil {
		return false
	}
	return slices.ContainsFunc(s.GPUs, func(other nvml.GPU) bool {
		return other.Parent == g.Parent && other.UUID != g.UUID && other.GPUInstance != nil && *other.GPUInstance == *g.GPUInstance
	})
}

// refuseShared makes a compute instance unhealthy. One that was offered before it had
// siblings stays in the offer, since tasks may hold units of it.
func (i *inventory) refuseShared(found nvml.GPU, known gpu, isKnown bool, set settings) {
	reason := fmt.Sprintf("it shares the memory of MIG GPU instance %d with other compute instances; "+
		"make one compute instance of each GPU instance", *found.GPUInstance)
	if isKnown {
		i.offered = append(i.offered, known.unusable(reason).blamed(i.xids))
		return
	}
	i.refuse(found, reason, set)
}
