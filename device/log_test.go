// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
)

// log returns the log of readings one after the other; a
// nil one is a fault of the whole node.
func log(t *testing.T, c Config, readings ...[]nvml.GPU) []string {
	t.Helper()
	set, err := c.settings()
	must.NoError(t, err)
	var out strings.Builder
	logger := hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})
	var i inventory
	for n, gpus := range readings {
		var fault error
		if gpus == nil {
			fault = errors.New("no such file")
		}
		next := i.after(reading{at: time.Unix(int64(n+1), 0), snapshot: &nvml.Snapshot{GPUs: gpus}, err: fault}, set)
		logChanges(logger, i, next, set)
		i = next
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// xidLog returns the log when a healthy GPU reports Xids.
func xidLog(t *testing.T, xids ...nvml.Xid) []string {
	t.Helper()
	set, err := Config{}.settings()
	must.NoError(t, err)
	var out strings.Builder
	logger := hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})
	s := &nvml.Snapshot{GPUs: []nvml.GPU{gpuOf("GPU-1", 8192, 0)}}
	before := inventory{}.after(reading{at: time.Unix(1, 0), snapshot: s}, set)
	logChanges(logger, inventory{}, before, set)
	s = &nvml.Snapshot{GPUs: s.GPUs, Xids: xids}
	logChanges(logger, before, before.after(reading{at: time.Unix(2, 0), snapshot: s}, set), set)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// says checks that each line has all words of one expectation, in order.
func says(t *testing.T, lines []string, want ...[]string) {
	t.Helper()
	must.Len(t, len(want), lines, must.Sprint(strings.Join(lines, "\n")))
	for n, words := range want {
		for _, word := range words {
			must.StrContains(t, lines[n], word)
		}
	}
}

func TestOperatorIsToldOnceOfAMissingLibrary(t *testing.T) {
	t.Parallel()
	lines := log(t, Config{NVMLLibrary: "/opt/lib.so"}, nil, nil, nil, []nvml.GPU{}, []nvml.GPU{})
	says(t, lines,
		[]string{"[WARN]", "cannot read GPUs", "nvml_library=/opt/lib.so", "no such file"},
		[]string{"[INFO]", "GPUs can be read again"})
}

// Nomad gets the log as JSON, in which a duration would be a number of ns.
func TestDurationsAreLoggedAsText(t *testing.T) {
	t.Parallel()
	set, err := Config{}.settings()
	must.NoError(t, err)
	var out strings.Builder
	logger := hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: true})
	logFault(logger, nil, errors.New("no such file"), set)
	must.StrContains(t, out.String(), `"poll_interval":"5s"`)
}

func TestOperatorIsToldOnceOfAUnitThatIsTooLarge(t *testing.T) {
	t.Parallel()
	small := []nvml.GPU{gpuOf("GPU-1", 2002, 0)}
	says(t, log(t, Config{MemoryUnit: "4GiB"}, small, small, small),
		[]string{"[WARN]", "GPU is not offered", "gpu=GPU-1", `memory_unit = \"4GiB\" is larger than the 2002 MiB`})
}

func TestOperatorIsToldOfHealth(t *testing.T) {
	t.Parallel()
	well, lost := []nvml.GPU{gpuOf("GPU-1", 8192, 0)}, []nvml.GPU{failing("GPU-1")}
	says(t, log(t, Config{}, well, well, lost, lost, well),
		[]string{"[INFO]", "GPU is offered", "units=8"},
		[]string{"[WARN]", "GPU cannot be used", "gpu=GPU-1", "GPU is lost"},
		[]string{"[INFO]", "GPU can be used again"})
}

func TestOperatorIsWarnedThatPersistenceIsOff(t *testing.T) {
	t.Parallel()
	g := gpuOf("GPU-1", 8192, 0)
	g.PersistenceMode = ptr(false)
	says(t, log(t, Config{}, []nvml.GPU{g}, []nvml.GPU{g}),
		[]string{"GPU is offered"}, []string{"[WARN]", "persistence mode is off"})
}
