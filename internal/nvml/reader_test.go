// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// state is a machine with these GPUs.
func state(gpus ...fakenvml.GPU) fakenvml.State { return fakenvml.State{GPUs: gpus} }

func open(t *testing.T, m *fakenvml.Machine) *nvml.Reader {
	r := nvml.NewReader(m.Library, nvml.WithSysfs(t.TempDir())) // not this machine's
	t.Cleanup(r.Close)
	return r
}

func snapshot(t *testing.T, r *nvml.Reader) *nvml.Snapshot {
	t.Helper()
	s, err := r.Snapshot(t.Context())
	must.NoError(t, err)
	return s
}

// readAtMost reads with a deadline.
func readAtMost(r *nvml.Reader, d time.Duration) (*nvml.Snapshot, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return r.Snapshot(ctx)
}

func TestSnapshotOfTwoGPUs(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		small := fakenvml.NewGPU(1, "GeForce GTX 960", 2002)
		big := fakenvml.NewGPU(2, "GeForce GTX 1080 Ti", 11175)
		big.ReservedMiB = 175
		big.Processes = map[int]int{4242: 1000, 79: fakenvml.NotAvailable}
		big.More["graphics_process"] = "4242 1000" // it draws, too
		big.More["used"] = "1000"
		m.Set(state(small, big))

		s := snapshot(t, open(t, m))
		must.Eq(t, "550.54.15", s.DriverVersion)
		must.Eq(t, &nvml.Version{Major: 12, Minor: 4}, s.CUDAVersion)
		must.Len(t, 2, s.GPUs)
		must.Eq(t, 2002, s.GPUs[0].Memory.TotalMiB)
		must.Eq(t, []nvml.Process{}, s.GPUs[0].Processes)
		must.Eq(t, nvml.GPU{
			UUID:      big.UUID,
			Index:     1,
			Name:      "GeForce GTX 1080 Ti",
			PCIBusID:  "00000000:02:00.0",
			Memory:    &nvml.Memory{TotalMiB: 11175, UsedMiB: 1000, FreeMiB: 10000, ReservedMiB: ptr[uint64](175)},
			Processes: []nvml.Process{{PID: 79}, {PID: 4242, UsedMiB: ptr[uint64](1000)}},
			NUMANode:  ptr(0), ComputeCapability: &nvml.Version{Major: 8},
			BAR1MiB: ptr[uint64](256), BAR1UsedMiB: ptr[uint64](2), PCIBandwidthMBps: ptr[uint64](16 * 1969),
			MaxCoresClockMHz: ptr[uint64](1410), MaxMemoryClockMHz: ptr[uint64](1593), PowerLimitW: ptr[uint64](300),
			PersistenceMode: ptr(true), DisplayMode: ptr(false), ECCMode: ptr(true),
			PowerW: ptr[uint64](31), TemperatureC: ptr[uint64](34), CoresClockMHz: ptr[uint64](210),
			MemoryClockMHz: ptr[uint64](405), UtilizationPct: ptr[uint64](12), MemoryBusyPct: ptr[uint64](3),
			EncoderPct: ptr[uint64](4), DecoderPct: ptr[uint64](5), UncorrectedECC: ptr[uint64](0),
			ECCL1: ptr[uint64](0), ECCL2: ptr[uint64](0), ECCMemory: ptr[uint64](0),
		}, s.GPUs[1])
	})
}

func TestBareGPUTellsOnlyWhatItMust(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		m.Set(state(fakenvml.GPU{UUID: "GPU-bare", Name: "NVIDIA GB10"}))
		gpu := snapshot(t, open(t, m)).GPUs[0]
		must.Eq(t, nvml.GPU{UUID: "GPU-bare", Name: "NVIDIA GB10", Processes: []nvml.Process{}}, gpu)
	})
}

func TestMemoryOfFirstVersionIsTheFallback(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A100", 40960)
		gpu.ReservedMiB = 600
		gpu.Fail = map[string]string{"nvmlDeviceGetMemoryInfo_v2": "UNKNOWN"}
		m.Set(state(gpu))
		memory := snapshot(t, open(t, m)).GPUs[0].Memory
		must.Eq(t, &nvml.Memory{TotalMiB: 40960, UsedMiB: 600, FreeMiB: 40360}, memory)
	})
}

func TestDriverWithoutOptionalFunctions(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		m.Set(state(fakenvml.NewGPU(1, "Tesla K80", 11441)))
		s := snapshot(t, open(t, m))
		must.Nil(t, s.CUDAVersion)
		must.NoError(t, s.GPUs[0].Err)
		must.Eq(t, 11441, s.GPUs[0].Memory.TotalMiB)
		must.Nil(t, s.GPUs[0].Memory.ReservedMiB)
		must.Nil(t, s.GPUs[0].Processes)
		must.Nil(t, s.GPUs[0].NUMANode)
	}, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetMigMode",
		"nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
		"nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetFieldValues")
}

func TestOneGPUFails(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		for _, fail := range []string{
			"nvmlDeviceGetHandleByIndex_v2 GPU_IS_LOST",
			"nvmlDeviceGetTemperature GPU_IS_LOST",
			"* GPU_IS_LOST",
			"nvmlDeviceGetMemoryInfo* NO_PERMISSION",
			"nvmlDeviceGetMigMode UNKNOWN",
		} {
			one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
			one.MIGMode = "off"
			r := open(t, m)
			m.Set(state(one, two))
			must.NoError(t, snapshot(t, r).GPUs[0].Err)

			one.More["fail"] = fail
			m.Set(state(one, two))
			s := snapshot(t, r)
			must.Len(t, 2, s.GPUs)
			must.Error(t, s.GPUs[0].Err)
			must.Eq(t, one.UUID, s.GPUs[0].UUID)
			must.NoError(t, s.GPUs[1].Err)

			delete(one.More, "fail")
			m.Set(state(one, two))
			must.NoError(t, snapshot(t, r).GPUs[0].Err)
			r.Close()
		}
	})
}

func TestIndexesMoveUpWhenAGPUGoes(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		m.Set(state(one, two))
		snapshot(t, r)

		m.Set(state(two))
		s := snapshot(t, r)
		must.Len(t, 1, s.GPUs)
		must.Eq(t, two.UUID, s.GPUs[0].UUID)
		must.Eq(t, 0, s.GPUs[0].Index)

		// The one now behind it cannot be read; it was last seen at index 1.
		lost := fakenvml.NewGPU(3, "NVIDIA A30", 24576)
		lost.Fail = map[string]string{"*": "GPU_IS_LOST"}
		m.Set(state(two, lost))
		s = snapshot(t, r)
		must.Len(t, 1, s.GPUs, must.Sprint("index 1 was GPU 2's, which is well at index 0"))
	})
}

func TestMIGInstances(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		parent := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		parent.MIGMode = "on"
		parent.Fail = map[string]string{"nvmlDeviceGetMemoryInfo*": "NO_PERMISSION"}
		r := open(t, m)
		m.Set(state(parent))
		s := snapshot(t, r)
		must.Len(t, 1, s.GPUs)
		must.True(t, s.GPUs[0].MIGEnabled)
		must.NoError(t, s.GPUs[0].Err)

		parent.MIG = []fakenvml.GPU{
			fakenvml.NewMIG(1, "NVIDIA A30 MIG 2g.12gb", 11968),
			fakenvml.NewMIG(2, "NVIDIA A30 MIG 1g.6gb", 5952),
		}
		m.Set(state(parent))
		s = snapshot(t, r)
		must.Len(t, 3, s.GPUs)
		instance := s.GPUs[2]
		must.Eq(t, parent.MIG[1].UUID, instance.UUID)
		must.Eq(t, parent.UUID, instance.Parent)
		must.Eq(t, "1g.6gb", instance.MIGProfile)
		must.Eq(t, 5952, instance.Memory.TotalMiB)
		must.Eq(t, parent.PCIBusID, instance.PCIBusID)
		must.False(t, instance.MIGEnabled)

		parent.Fail = map[string]string{"*": "GPU_IS_LOST"}
		m.Set(state(parent))
		for _, gpu := range snapshot(t, r).GPUs {
			must.Error(t, gpu.Err)
			must.NotEq(t, "", gpu.UUID)
		}
	})
}

func TestDriverComesLate(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		path := filepath.Join(t.TempDir(), fakenvml.Library)
		r := nvml.NewReader(path)
		t.Cleanup(r.Close)
		_, err := r.Snapshot(t.Context())
		must.ErrorContains(t, err, path)
		must.ErrorContains(t, err, "No such file or directory")

		must.NoError(t, os.Symlink(m.Library, path))
		_, err = r.Snapshot(t.Context())
		must.ErrorContains(t, err, "Driver Not Loaded")

		m.Set(state())
		must.Len(t, 0, snapshot(t, r).GPUs)
		m.Set(state(fakenvml.NewGPU(1, "NVIDIA GeForce RTX 3060", 12288)))
		must.Len(t, 1, snapshot(t, r).GPUs)
	})
}

func TestDriverIsReloaded(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		well := state(fakenvml.NewGPU(1, "NVIDIA A30", 24576))
		r := open(t, m)
		m.Set(well)
		snapshot(t, r)

		gone := well
		gone.Fail = map[string]string{"*": "DRIVER_NOT_LOADED"}
		m.Set(gone)
		for range 2 {
			_, err := r.Snapshot(t.Context())
			must.ErrorContains(t, err, "Driver Not Loaded")
		}
		m.Set(well)
		must.Len(t, 1, snapshot(t, r).GPUs)
	})
}

// Constant values are read once per GPU and session: their functions may then
// fail. Values that can change while tasks run are read each time.
func TestWhatStaysTheSameIsAskedOnce(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		r := open(t, m)
		a30, l4 := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA L4", 23034)
		deaf := func(gpu fakenvml.GPU) fakenvml.GPU {
			gpu.Fail = map[string]string{"nvmlDeviceGetName": "UNKNOWN", "nvmlDeviceGetMax*": "UNKNOWN", "nvmlDeviceGetPciInfo_v3": "UNKNOWN"}
			return gpu
		}
		m.Set(state(a30))
		before := snapshot(t, r).GPUs[0]
		a30 = deaf(a30)
		a30.More["power_limit"], a30.More["persistence_mode"] = "200000", "off"
		m.Set(state(a30))
		now := snapshot(t, r).GPUs[0]
		must.Eq(t, ptr[uint64](200), now.PowerLimitW)
		must.Eq(t, ptr(false), now.PersistenceMode)
		now.PowerLimitW, now.PersistenceMode = before.PowerLimitW, before.PersistenceMode
		must.Eq(t, before, now)

		// Another GPU at the same index is asked, though it was met elsewhere.
		m.Set(state(l4, a30))
		must.Eq(t, "NVIDIA L4", snapshot(t, r).GPUs[0].Name)
		must.ErrorContains(t, snapshot(t, r).GPUs[1].Err, "nvmlDeviceGetName")

		// So is one of a new session.
		m.Set(fakenvml.State{Faults: fakenvml.Faults{Fail: map[string]string{"*": "DRIVER_NOT_LOADED"}}})
		_, err := r.Snapshot(t.Context())
		must.Error(t, err)
		l4.More["max_sm_clock"] = "2040"
		m.Set(state(l4))
		must.Eq(t, ptr[uint64](2040), snapshot(t, r).GPUs[0].MaxCoresClockMHz)
	})
}

func TestWhatCouldNotBeReadIsAskedAgain(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.Fail = map[string]string{"nvmlDeviceGetPciInfo_v3": "UNKNOWN"}
		r := open(t, m)
		m.Set(state(gpu))
		must.Eq(t, "", snapshot(t, r).GPUs[0].PCIBusID)
		gpu.Fail = nil
		m.Set(state(gpu))
		must.Eq(t, "00000000:01:00.0", snapshot(t, r).GPUs[0].PCIBusID)
	})
}

func TestLibraryThatIsNotNVML(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		for _, library := range []string{"libc.so.6", t.TempDir(), os.Args[0]} {
			r := nvml.NewReader(library)
			_, err := r.Snapshot(t.Context())
			must.ErrorContains(t, err, library)
			r.Close()
		}
	})
}

func TestHangOfOneGPU(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		stuck, well := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		m.Set(state(stuck, well))
		snapshot(t, r)

		stuck.Hang = []string{"nvmlDeviceGetTemperature"}
		m.Set(state(stuck, well))
		s, err := readAtMost(r, time.Second)
		must.NoError(t, err)
		must.ErrorIs(t, s.GPUs[0].Err, nvml.ErrHung)
		must.ErrorContains(t, s.GPUs[0].Err, "nvmlDeviceGetTemperature")
		must.Eq(t, stuck.UUID, s.GPUs[0].UUID)
		must.NoError(t, s.GPUs[1].Err)

		// While it hangs, no call waits for it and no goroutine is added.
		goroutines := runtime.NumGoroutine()
		for range 20 {
			s := snapshot(t, r)
			must.ErrorIs(t, s.GPUs[0].Err, nvml.ErrHung)
			must.NoError(t, s.GPUs[1].Err)
		}
		const onTheirWayOut = 3 // of the other GPU's reading, which has just ended
		must.LessEq(t, goroutines+onTheirWayOut, runtime.NumGoroutine())

		stuck.Hang = nil
		m.Set(state(stuck, well))
		eventually(t, func() bool { return snapshot(t, r).GPUs[0].Err == nil })
	})
}

func TestHangOfNVML(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		well := state(fakenvml.NewGPU(1, "NVIDIA A30", 24576))
		for _, function := range []string{"nvmlInit_v2", "nvmlDeviceGetCount_v2"} {
			r := open(t, m)
			hung := well
			hung.Hang = []string{function}
			m.Set(hung)
			for range 3 {
				_, err := readAtMost(r, 300*time.Millisecond)
				must.ErrorIs(t, err, nvml.ErrHung)
				must.ErrorContains(t, err, function)
			}
			m.Set(well)
			eventually(t, func() bool {
				s, err := readAtMost(r, time.Second)
				return err == nil && len(s.GPUs) == 1
			})
			r.Close()
		}
	})
}

func TestCancelledSnapshot(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		m.Set(state(fakenvml.NewGPU(1, "NVIDIA A30", 24576)))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := open(t, m).Snapshot(ctx)
		must.ErrorIs(t, err, context.Canceled)
	})
}

// eventually retries until the condition holds; the test's deadline is the bound.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for !so() {
		select {
		case <-t.Context().Done():
			t.Fatal("never so")
		case <-time.After(time.Millisecond):
		}
	}
}

func ptr[T any](v T) *T { return &v }

// A GPU can be reset while the session is closed. The next reading opens another one.
func TestReleaseEndsTheSession(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		r := open(t, m)
		well := state(fakenvml.NewGPU(1, "NVIDIA A30", 24576))
		noMore := well
		noMore.Fail = map[string]string{"nvmlInit*": "NO_PERMISSION"}
		m.Set(well)
		snapshot(t, r)
		m.Set(noMore)
		snapshot(t, r) // there is a session

		must.NoError(t, r.Release())
		must.NoError(t, r.Release())
		_, err := r.Snapshot(t.Context())
		must.ErrorContains(t, err, "Insufficient Permissions")
		m.Set(well)
		snapshot(t, r)
	})
}

func TestReleaseUnderAHangingCall(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		r := open(t, m)
		stuck := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		stuck.Hang = []string{"nvmlDeviceGetName"}
		m.Set(state(stuck))
		_, err := readAtMost(r, 300*time.Millisecond)
		must.NoError(t, err)
		must.ErrorIs(t, r.Release(), nvml.ErrHung)
		stuck.Hang = nil
		m.Set(state(stuck))
		for r.Release() != nil {
			time.Sleep(10 * time.Millisecond)
		}
	})
}
