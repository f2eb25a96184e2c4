// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
)

func TestXidIsAboutAGPU(t *testing.T) {
	t.Parallel()
	whole := nvml.GPU{UUID: "GPU-1"}
	first := nvml.GPU{UUID: "MIG-1", Parent: "GPU-1", GPUInstance: ptr(1)}
	second := nvml.GPU{UUID: "MIG-2", Parent: "GPU-1", GPUInstance: ptr(2)}
	unnumbered := nvml.GPU{UUID: "MIG-3", Parent: "GPU-1"}
	for name, tc := range map[string]struct {
		xid   nvml.Xid
		about []string
	}{
		"the GPU":      {nvml.Xid{UUID: "GPU-1"}, []string{"GPU-1", "MIG-1", "MIG-2", "MIG-3"}},
		"one instance": {nvml.Xid{UUID: "GPU-1", GPUInstance: ptr(2)}, []string{"GPU-1", "MIG-2", "MIG-3"}},
		"another GPU":  {nvml.Xid{UUID: "GPU-2"}, nil},
	} {
		var got []string
		for _, g := range []nvml.GPU{whole, first, second, unnumbered} {
			if about(tc.xid, g) {
				got = append(got, g.UUID)
			}
		}
		must.Eq(t, tc.about, got, must.Sprint(name))
	}
}

// An Xid counts whatever else its reading reports of the GPU: the GPU is used
// again only after the same probation as after any other Xid.
func TestXidCountsWhateverElseIsReadOfItsGPU(t *testing.T) {
	t.Parallel()
	well := gpuOf("GPU-1", 8192, 0)
	sizeless := well
	sizeless.Memory = nil
	kept := newScene(t).claim("c", 0).reading(2)
	for name, tc := range map[string]struct {
		config Config
		with   reading
	}{
		"well":        {Config{}, reading{snapshot: &nvml.Snapshot{GPUs: []nvml.GPU{well}}}},
		"lost":        {Config{}, reading{snapshot: &nvml.Snapshot{GPUs: []nvml.GPU{failing("GPU-1")}}}},
		"missing":     {Config{}, reading{snapshot: &nvml.Snapshot{}}},
		"no size":     {Config{}, reading{snapshot: &nvml.Snapshot{GPUs: []nvml.GPU{sizeless}}}},
		"other units": {Config{MemoryUnit: "2GiB"}, kept},
	} {
		first := reading{at: time.Unix(1, 0), snapshot: &nvml.Snapshot{GPUs: []nvml.GPU{well}}}
		tc.with.at = time.Unix(2, 0)
		tc.with.snapshot.Xids = []nvml.Xid{{UUID: "GPU-1", Code: 79}}
		after := first
		after.at = time.Unix(3, 0)
		i := story(t, tc.config, first, tc.with, after)
		must.Eq(t, "Xid 79; on probation: it must be healthy for 30s", i.offered[0].health, must.Sprint(name))
	}
}

func TestOperatorIsToldOfXids(t *testing.T) {
	t.Parallel()
	lines := xidLog(t, nvml.Xid{UUID: "GPU-1", Code: 31}, nvml.Xid{UUID: "GPU-1", Code: 48})
	says(t, lines,
		[]string{"[INFO]", "GPU is offered"},
		[]string{"[INFO]", "error caused by a program", "gpu=GPU-1", "xid=31"},
		[]string{"[WARN]", "GPU cannot be used", "Xid 48; on probation"})
}
