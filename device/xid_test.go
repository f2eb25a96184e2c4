package device

import (
	"testing"

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

func TestOperatorIsToldOfXids(t *testing.T) {
	t.Parallel()
	lines := xidLog(t, nvml.Xid{UUID: "GPU-1", Code: 31}, nvml.Xid{UUID: "GPU-1", Code: 48})
	says(t, lines,
		[]string{"[INFO]", "GPU is offered"},
		[]string{"[INFO]", "error of a program", "gpu=GPU-1", "xid=31"},
		[]string{"[WARN]", "GPU cannot be used", "Xid 48; on probation"})
}
