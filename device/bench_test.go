// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// bigNode is 16 GPUs of 564 units.
func bigNode(t testing.TB) inventory {
	set, err := Config{MemoryUnit: "512MiB"}.settings()
	must.NoError(t, err)
	var gpus []nvml.GPU
	for n := range 16 {
		g := full()
		g.UUID = fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", n)
		g.Memory = &nvml.Memory{TotalMiB: 564 * 512, ReservedMiB: ptr[uint64](0)}
		gpus = append(gpus, g)
	}
	r := reading{at: time.Unix(1, 0), snapshot: &nvml.Snapshot{DriverVersion: "550", GPUs: gpus}}
	return inventory{}.after(r, set)
}

// What a change of anything costs.
func BenchmarkGroups(b *testing.B) {
	i := bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if len(deviceGroups(i)) != 16 {
			b.Fatal("not 16 groups")
		}
	}
}

// What a poll costs that found no change: nothing is built.
func BenchmarkUnchangedPoll(b *testing.B) {
	before, after := bigNode(b), bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		if !sameOffer(before, after) {
			b.Fatal("it is another offer")
		}
	}
}

// What statistics cost with each reading.
func BenchmarkStats(b *testing.B) {
	i := bigNode(b)
	b.ReportAllocs()
	for b.Loop() {
		groupStats(i)
	}
}

// The plugin at rest on 8 GPUs sends nothing and does not grow. How long it
// rests, and where the figures go, is the caller's choice: see `make
// bench-device`.
func TestIdle(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		rest := time.Second
		config := quick()
		if text := os.Getenv("GPU_MEM_IDLE"); text != "" {
			var err error
			rest, err = time.ParseDuration(text)
			must.NoError(t, err)
			config = Config{}
		}
		var gpus []fakenvml.GPU
		for n := range 8 {
			gpus = append(gpus, fakenvml.NewGPU(n+1, "NVIDIA H100 80GB HBM3", 81920))
		}
		m.Set(machine(gpus...))
		h := realNVML(t, m, config)
		h.stopAfter(rest + patience)
		s := h.fingerprint()
		s.until(groups(8))
		h.reads(2)

		measure()                               // of what a first collection finds, some is freed by the second
		before, started := measure(), cpuTime() // not what measuring costs
		select {
		case <-s.responses:
			t.Fatal("a message while nothing changed")
		case <-time.After(rest):
		}
		spent := cpuTime() - started
		after := measure()
		must.LessEq(t, before.goroutines+8, after.goroutines, must.Sprint("a reading of each GPU may be under way"))
		must.LessEq(t, before.heap+1<<20, after.heap)
		after.report(t, before, spent, rest)
	})
}

// footprint is what a process takes while it does nothing.
type footprint struct {
	goroutines int
	heap       uint64 // bytes alive
}

func measure() footprint {
	debug.FreeOSMemory() // else the runtime releases it gradually while the plugin idles
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return footprint{goroutines: runtime.NumGoroutine(), heap: memory.HeapAlloc}
}

// cpuTime is what the threads of this process have used: the plugin's, and the
// client's, which rests with it.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// report writes the figures to a file, if one is wanted.
func (f footprint) report(t *testing.T, before footprint, spent, rest time.Duration) {
	name := os.Getenv("GPU_MEM_FIGURES")
	if name == "" {
		return
	}
	figures := fmt.Sprintf("idle %s, 8 GPUs: CPU of one core|%.3f %%|0.2 %%\n", rest, 100*spent.Seconds()/rest.Seconds()) +
		fmt.Sprintf("idle %s, 8 GPUs: fingerprint messages|0|0\n", rest) +
		fmt.Sprintf("idle %s, 8 GPUs: more goroutines|%d|0\n", rest, f.goroutines-before.goroutines) +
		fmt.Sprintf("idle %s, 8 GPUs: more heap|%d KiB|0\n", rest, (int64(f.heap)-int64(before.heap))/1024)
	must.NoError(t, os.WriteFile(name, []byte(figures), 0o600))
}
