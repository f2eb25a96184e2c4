// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/tableconfig"
)

// parse reads an operator's config block as Nomad does.
func parse(t *testing.T, hcl string) Config {
	t.Helper()
	spec, err := new(Plugin).ConfigSchema()
	must.NoError(t, err)
	var c Config
	hclutils.NewConfigParser(spec).ParseHCL(t, "config {\n"+hcl+"\n}", &c)
	return c
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	want := settings{
		unitText: "1GiB", unitMiB: 1024, pollInterval: 5 * time.Second, pollTimeout: 10 * time.Second,
		probation: 30 * time.Second, xids: xidPolicy{ignored: []int{13, 31, 43, 45, 68, 109}}, table: tableconfig.Default(),
	}
	for name, c := range map[string]Config{"no block": {}, "empty block": parse(t, ``), "empty table": parse(t, `table {}`)} {
		s, err := c.settings()
		must.NoError(t, err, must.Sprint(name))
		must.True(t, reflect.DeepEqual(want, s), must.Sprintf("%s: %+v", name, s))
	}
}

func TestConfigInFull(t *testing.T) {
	t.Parallel()
	s, err := parse(t, `
		memory_unit     = "512MiB"
		reserved_memory = "1.5GiB"
		nvml_library    = "/opt/nvidia/libnvidia-ml.so.1"
		poll_interval   = "30s"
		poll_timeout    = "1m"
		memory_size     = "110GiB"
		include         = ["GPU-1", "*A100*"]
		ignore          = ["0"]
		xid_critical    = [48, 79]
		xid_ignored     = [68]
		probation       = "2m"
		gpu "GPU-1" {
			reserved_memory = "2GiB"
			allow_unmanaged = true
		}
		gpu "GPU-2" {
			memory_size = "64GiB"
		}
		table {
			store = "file"
			path  = "/var/lib/table"
		}`).settings()
	must.NoError(t, err)
	must.Eq(t, 512, s.unitMiB)
	must.Eq(t, 1536, s.common.reservedMiB)
	must.Eq(t, "/opt/nvidia/libnvidia-ml.so.1", s.library)
	must.Eq(t, 30*time.Second, s.pollInterval)
	must.Eq(t, time.Minute, s.pollTimeout)
	must.Eq(t, "file", s.table.Store)
	must.Eq(t, selection{"GPU-1", "*A100*"}, s.include)
	must.Eq(t, selection{"0"}, s.ignore)
	must.True(t, reflect.DeepEqual(xidPolicy{critical: []int{48, 79}, ignored: []int{68}}, s.xids))
	must.Eq(t, 2*time.Minute, s.probation)
	must.True(t, gpuSettings{reservedText: "2GiB", reservedMiB: 2048, sizeMiB: 112640, allowUnmanaged: true} == s.of("GPU-1"))
	must.True(t, gpuSettings{reservedText: "1.5GiB", reservedMiB: 1536, sizeMiB: 65536} == s.of("GPU-2"))
	must.True(t, gpuSettings{reservedText: "1.5GiB", reservedMiB: 1536, sizeMiB: 112640} == s.of("GPU-3"))
	must.Eq(t, "/var/lib/table", s.table.Path)
}

func TestBadConfigIsOneSentenceWithOptionAndValue(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		`memory_unit: invalid size "0", want at least 1MiB`:                   {MemoryUnit: "0"},
		`memory_unit: invalid size "-1GiB"`:                                   {MemoryUnit: "-1GiB"},
		`memory_unit: invalid size "lots"`:                                    {MemoryUnit: "lots"},
		`memory_unit: invalid size "1,5GiB"`:                                  {MemoryUnit: "1,5GiB"},
		`memory_unit: invalid size "1000kB": 1000000 bytes are not whole MiB`: {MemoryUnit: "1000kB"},
		`memory_unit: invalid size "1024": 1024 bytes are not whole MiB`:      {MemoryUnit: "1024"},
		`reserved_memory: invalid size "some"`:                                {ReservedMemory: "some"},
		`poll_interval: invalid duration "5"`:                                 {PollInterval: "5"},
		`poll_interval: invalid duration "0s", want at least 10ms`:            {PollInterval: "0s"},
		`poll_timeout: invalid duration "-1s", want at least 10ms`:            {PollTimeout: "-1s"},
		`memory_size: invalid size "big"`:                                     {MemorySize: "big"},
		`gpu "GPU-1": reserved_memory: invalid size "x"`:                      {GPUs: map[string]GPUConfig{"GPU-1": {ReservedMemory: "x"}}},
		`include = [""]: an empty entry selects no GPU`:                       {Include: []string{""}},
		`xid_ignored: invalid list [0], want positive numbers`:                {XidIgnored: []int{0}},
		`probation: invalid duration "soon"`:                                  {Probation: "soon"},
		`table.store = "zookeeper"`:                                           {Table: tableconfig.Config{Store: "zookeeper"}},
	} {
		_, err := c.settings()
		must.ErrorContains(t, err, want)
	}
}

func TestSetConfigMayBeRepeated(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(string) Reader { panic("SetConfig must open nothing") }, Config{})
	for range 3 {
		h.configure(Config{MemoryUnit: "2GiB"})
	}
	must.ErrorContains(t, h.setConfig(Config{MemoryUnit: "x"}), `plugin "gpu-mem": memory_unit: invalid size "x"`)
	must.Eq(t, 2048, h.plugin.current().unitMiB, must.Sprint("a bad configuration changes nothing"))
}
