// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
)

func TestIncludeAndIgnore(t *testing.T) {
	t.Parallel()
	g := nvml.GPU{UUID: "MIG-1", Parent: "GPU-1", Index: 3, Name: "Quadro RTX 6000/8000"}
	for name, tc := range map[string]struct {
		include, ignore []string
		selected        bool
	}{
		"nothing said":             {nil, nil, true},
		"by UUID":                  {[]string{"MIG-1"}, nil, true},
		"by its GPU's UUID":        {[]string{"GPU-1"}, nil, true},
		"by index":                 {[]string{"3"}, nil, true},
		"by model":                 {[]string{"Quadro RTX 6000/8000"}, nil, true},
		"by a part of the model":   {[]string{"*RTX*"}, nil, true},
		"part is not enough":       {[]string{"RTX"}, nil, false},
		"another is included":      {[]string{"GPU-2", "0", "*A100*"}, nil, false},
		"ignored":                  {nil, []string{"*RTX*"}, false},
		"ignored though included":  {[]string{"3"}, []string{"MIG-1"}, false},
		"dots and brackets are so": {[]string{"Quadro.RTX 6000[/]8000"}, nil, false},
	} {
		must.Eq(t, tc.selected, settings{include: tc.include, ignore: tc.ignore}.selects(g), must.Sprint(name))
	}
}

func TestIndexDecidesOnce(t *testing.T) {
	t.Parallel()
	one, two := gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0)
	two.Index = 1
	moved := two
	moved.Index = 0
	i := history(t, Config{Ignore: []string{"0"}}, []nvml.GPU{one, two}, []nvml.GPU{moved}, []nvml.GPU{one})
	must.Len(t, 1, i.offered)
	must.Eq(t, "GPU-2", i.offered[0].UUID)
	must.Eq(t, "", i.refusedReason("GPU-1"))
}

func (i inventory) refusedReason(uuid string) string {
	for _, g := range i.refused {
		if g.UUID == uuid {
			return g.health
		}
	}
	return ""
}
