// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package injection

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/configtest"
	"nomad-gpu-mem/driver/docker"
)

const (
	gpuA = allocator.GPUID("GPU-aaaa")
	gpuB = allocator.GPUID("GPU-bbbb")
)

func TestInjection(t *testing.T) {
	t.Parallel()
	listing := func(devices ...string) docker.CDI { return docker.CDI{Enabled: true, Lists: true, Devices: devices} }
	const a, b = "nvidia.com/gpu=GPU-aaaa", "nvidia.com/gpu=GPU-bbbb"
	both := []allocator.GPUID{gpuA, gpuB}
	for name, c := range map[string]struct {
		setting  config.Injection
		runtimes []string
		cdi      docker.CDI
		gpus     []allocator.GPUID
		want     config.Injection
		reason   string
	}{
		"auto with both":                       {config.ByEither, []string{"runc", "nvidia"}, listing(a, b), both, config.ByCDI, ""},
		"auto without the runtime":             {config.ByEither, []string{"runc"}, listing(a, b), both, config.ByCDI, ""},
		"auto without CDI":                     {config.ByEither, []string{"runc", "nvidia"}, docker.CDI{}, both, config.ByRuntime, ""},
		"auto with one of two GPUs":            {config.ByEither, []string{"runc", "nvidia"}, listing(a), both, config.ByRuntime, ""},
		"auto with GPUs by index":              {config.ByEither, []string{"runc", "nvidia"}, listing("nvidia.com/gpu=0", "nvidia.com/gpu=all"), nil, config.ByRuntime, ""},
		"auto with another vendor's":           {config.ByEither, []string{"runc", "nvidia"}, listing("amd.com/gpu=GPU-aaaa"), nil, config.ByRuntime, ""},
		"auto on an engine that lists nothing": {config.ByEither, []string{"runc", "nvidia"}, docker.CDI{Enabled: true}, both, config.ByRuntime, ""},
		"auto, such an engine, no runtime":     {config.ByEither, []string{"runc"}, docker.CDI{Enabled: true}, both, config.ByNone, `no runtime "nvidia"`},
		"auto with a MIG instance":             {config.ByEither, []string{"runc"}, listing("nvidia.com/gpu=MIG-1"), []allocator.GPUID{"MIG-1"}, config.ByCDI, ""},
		"auto with neither":                    {config.ByEither, []string{"runc"}, docker.CDI{}, nil, config.ByNone, `no runtime "nvidia"`},
		"auto without a specification":         {config.ByEither, []string{"runc"}, listing(), nil, config.ByNone, "names a GPU by its UUID"},
		"runtime with both":                    {config.ByRuntime, []string{"runc", "nvidia"}, listing(a, b), both, config.ByRuntime, ""},
		"runtime without it":                   {config.ByRuntime, []string{"runc"}, listing(a, b), both, config.ByNone, `no runtime "nvidia"`},
		"CDI with both":                        {config.ByCDI, []string{"runc", "nvidia"}, listing(a, b), both, config.ByCDI, ""},
		"CDI on an old engine":                 {config.ByCDI, []string{"runc", "nvidia"}, docker.CDI{}, nil, config.ByNone, "has no CDI"},
		"CDI on an engine that lists nothing":  {config.ByCDI, []string{"runc"}, docker.CDI{Enabled: true}, both, config.ByCDI, ""},
		"CDI without one of the GPUs":          {config.ByCDI, []string{"runc", "nvidia"}, listing(a), both, config.ByNone, b},
		"CDI without any specification":        {config.ByCDI, []string{"runc", "nvidia"}, listing(), nil, config.ByNone, "nvidia-ctk cdi generate"},
		"a name that begins with another's":    {config.ByCDI, []string{"runc"}, listing(a + "0"), []allocator.GPUID{gpuA}, config.ByNone, a},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settingsOf(t, `gpu_injection = "`+string(c.setting)+`"`)
			way, reasons := Choose(s, docker.Info{Runtimes: c.runtimes, CDI: c.cdi}, c.gpus)
			must.Eq(t, c.want, way)
			if c.reason == "" {
				must.SliceEmpty(t, reasons)
			} else {
				must.SliceNotEmpty(t, reasons)
				must.StrContains(t, strings.Join(reasons, "; "), c.reason)
			}
		})
	}
}

func TestPlainRuntime(t *testing.T) {
	t.Parallel()
	s := settingsOf(t, ``)
	for _, c := range []struct{ name, path, want string }{
		{"runc", "runc", ""}, {"crun", "/usr/bin/crun", ""}, {"", "", ""}, {"nvidia", "/usr/bin/wrapper", "runc"},
		{"gpu", "/usr/bin/nvidia-container-runtime", "runc"}, {"gpu", "/usr/bin/nvidia-container-runtime.cdi", "runc"},
	} {
		info := docker.Info{DefaultRuntime: c.name, RuntimePaths: map[string]string{c.name: c.path}}
		must.Eq(t, c.want, PlainRuntime(s, info))
	}
}

// settingsOf returns what the plugin makes of an operator's config block.
func settingsOf(t *testing.T, hcl string) config.Settings {
	t.Helper()
	s, err := configtest.Plugin(t, hcl).Settings()
	must.NoError(t, err)
	return s
}
