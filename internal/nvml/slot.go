// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// slot is one of NVML's indexes and the GPU there. Only the one reading in its lane uses its
// fields.
type slot struct {
	lane[[]GPU]
	index int
	known *traits // of the GPU here; nil if they must be read
}

// traits are the values that are constant during a session, which most values are.
type traits struct {
	GPU
	canMIG bool
}

// read reads the physical GPU in the slot, and its MIG instances.
func (s *slot) read(p *probe) []GPU {
	handle, err := query(p, "nvmlDeviceGetHandleByIndex_v2", func() (nvml.Device, nvml.Return) {
		return p.library.DeviceGetHandleByIndex(s.index)
	})
	if err != nil {
		s.known = nil
		return []GPU{{Index: s.index, Err: err}}
	}
	d := &device{probe: p, Device: handle}
	met := s.meet(d)
	gpu := met.GPU
	gpu.MIGEnabled = met.canMIG && d.migEnabled()
	d.measure(&gpu)
	if !gpu.MIGEnabled {
		d.readMemory(&gpu)
	}
	if d.err != nil {
		s.known = nil
		return []GPU{gpu.failed(d.err)}
	}
	gpus := []GPU{gpu}
	if gpu.MIGEnabled {
		gpus = append(gpus, d.readInstances(gpu)...)
	}
	return gpus
}

// meet reads the GPU's identity each time, since indexes shift. It reads the traits of a new
// GPU, and again while one was unreadable.
func (s *slot) meet(d *device) traits {
	uuid := must(d, "nvmlDeviceGetUUID", d.GetUUID)
	if s.known != nil && s.known.UUID == uuid {
		return *s.known
	}
	s.known = nil
	met := traits{GPU: GPU{Index: s.index, UUID: uuid, Name: d.name()}}
	met.canMIG = d.canMIG()
	d.describe(&met.GPU)
	if d.err == nil && !d.doubtful {
		s.known = &met
	}
	return met
}
