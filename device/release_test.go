// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// A GPU can be reset only if nothing has it open, and the plugin's session has all.
func TestCordonForResetClosesTheSession(t *testing.T) {
	t.Parallel()
	mig := gpuOf("GPU-3", 8192, 0)
	mig.MIGEnabled = true // refused, but its mode may be to be changed
	h, reader := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0), mig)
	table := allocator.NewTable(h.store)
	s := h.fingerprint()
	s.until(groups(2))
	for _, gpu := range []allocator.GPUID{"GPU-1", "GPU-3"} {
		must.NoError(t, table.CordonForReset(t.Context(), gpu, "row remapping"))
		h.tableUntil(func(s *allocator.Snapshot) bool {
			state := stateOf(s, gpu)
			return state.Health == "cordoned: row remapping; released: the GPU can be reset now"
		})
		must.False(t, reader.hasSession())
		h.reads(3)
		must.False(t, reader.hasSession())
		newest := h.inventory()
		other, _ := newest.find("GPU-2")
		must.Eq(t, "", other.health, must.Sprint("stays as it was last read"))

		must.NoError(t, table.Uncordon(t.Context(), gpu))
		h.tableUntil(func(s *allocator.Snapshot) bool { return !contains(stateOf(s, gpu).Health, "cordoned") })
		must.True(t, reader.hasSession())
	}
}

// A cordon on another GPU counts meanwhile, and the health says that a session hangs.
func TestCordonForResetWhileTheSessionHangs(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0))
	reader.jam(nvml.ErrHung)
	table := allocator.NewTable(h.store)
	s := h.fingerprint()
	s.until(groups(2))
	must.NoError(t, table.CordonForReset(t.Context(), "GPU-1", ""))
	s.until(health("GPU-1", "cordoned; cannot release the GPU: NVML call does not return"))
	must.NoError(t, table.Cordon(t.Context(), "GPU-2", "fan is loud"))
	s.until(health("GPU-2", "cordoned: fan is loud"))
	reader.jam(nil)
	s.until(health("GPU-1", "the GPU can be reset now"))

	must.NoError(t, table.Cordon(t.Context(), "GPU-1", "still")) // without a release
	s.until(health("GPU-1", "cordoned: still"))
	must.True(t, reader.hasSession())
}

func stateOf(s *allocator.Snapshot, id allocator.GPUID) allocator.GPUState {
	for _, gpu := range s.GPUs {
		if gpu.ID == id {
			return gpu.State
		}
	}
	return allocator.GPUState{}
}

// The complete procedure: the operator resets the GPU as the driver asks, and it is used again.
func TestGPUIsResetAndUsedAgain(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A100-SXM4-80GB", 81920)
		gpu.More["remapped_rows"] = "pending"
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		s := h.fingerprint()
		s.until(health(gpu.UUID, "nomad-gpu-mem cordon --release"))
		table := allocator.NewTable(h.store)
		must.NoError(t, table.CordonForReset(t.Context(), allocator.GPUID(gpu.UUID), ""))
		s.until(health(gpu.UUID, "the GPU can be reset now"))

		away := machine() // a reset takes the GPU away for a moment
		away.Fail = map[string]string{"*": "DRIVER_NOT_LOADED"}
		m.Set(away)
		h.reads(3)
		gpu.More["remapped_rows"] = "well"
		m.Set(machine(gpu))
		must.NoError(t, table.Uncordon(t.Context(), allocator.GPUID(gpu.UUID)))
		s.until(health(gpu.UUID, ""))
		must.Eq(t, 0, failures(h.inventory(), gpu.UUID), must.Sprint("nothing was read meanwhile"))
	})
}
