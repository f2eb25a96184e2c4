// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package fakenvml

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/shoenig/test/must"
)

func TestMain(m *testing.M) { Main(m) }

func TestStateText(t *testing.T) {
	t.Parallel()
	s := State{GPUs: []GPU{{
		UUID: "GPU-1", Name: "NVIDIA A30", MemoryMiB: 24576, MIGMode: "on",
		Processes: map[int]int{7: NotAvailable, 3: 512},
		Events:    []string{"xid 79"},
		MIG:       []GPU{{UUID: "MIG-1", Name: "NVIDIA A30 MIG 1g.6gb"}},
		Faults:    Faults{Fail: map[string]string{"*": "GPU_IS_LOST"}, Hang: []string{"nvmlDeviceGetName"}},
	}}}
	must.Eq(t, `driver = 550.54.15
cuda = 12.4

[gpu]
uuid = GPU-1
name = NVIDIA A30
memory = 24576
mig = on
process = 3 512
process = 7 n/a
event = xid 79
fail = * GPU_IS_LOST
hang = nvmlDeviceGetName

[mig]
uuid = MIG-1
name = NVIDIA A30 MIG 1g.6gb
`, s.String())
}

func TestExampleStateIsReadByTheLibrary(t *testing.T) {
	Run(t, func(t *testing.T, m *Machine) {
		text, err := os.ReadFile("testdata/example.state")
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(m.state, text, 0o600))

		lib := nvml.New(nvml.WithLibraryPath(m.Library))
		must.Eq(t, nvml.SUCCESS, lib.Init())
		defer lib.Shutdown()
		count, ret := lib.DeviceGetCount()
		must.Eq(t, nvml.SUCCESS, ret)
		must.Eq(t, 2, count)

		instance, ret := lib.DeviceGetHandleByUUID("MIG-33333333-3333-5333-8333-333333333333")
		must.Eq(t, nvml.SUCCESS, ret)
		parent, ret := instance.GetDeviceHandleFromMigDeviceHandle()
		must.Eq(t, nvml.SUCCESS, ret)
		index, ret := parent.GetIndex()
		must.Eq(t, nvml.SUCCESS, ret)
		must.Eq(t, 1, index)
		_, ret = instance.GetTemperature(nvml.TEMPERATURE_GPU)
		must.Eq(t, nvml.ERROR_NOT_SUPPORTED, ret)
	})
}

func TestEventsAreDeliveredOnce(t *testing.T) {
	Run(t, func(t *testing.T, m *Machine) {
		gpu := NewGPU(1, "NVIDIA A30", 24576)
		gpu.Events = []string{"xid 13"}
		m.Set(State{GPUs: []GPU{gpu}})

		lib := nvml.New(nvml.WithLibraryPath(m.Library))
		must.Eq(t, nvml.SUCCESS, lib.Init())
		defer lib.Shutdown()
		device, ret := lib.DeviceGetHandleByIndex(0)
		must.Eq(t, nvml.SUCCESS, ret)
		set, ret := lib.EventSetCreate()
		must.Eq(t, nvml.SUCCESS, ret)
		defer set.Free()
		must.Eq(t, nvml.SUCCESS, device.RegisterEvents(nvml.EventTypeXidCriticalError, set))
		_, ret = set.Wait(0)
		must.Eq(t, nvml.ERROR_TIMEOUT, ret, must.Sprint("an event from before the registration"))

		gpu.Events = append(gpu.Events, "0x2 0", "xid 79")
		m.Set(State{GPUs: []GPU{gpu}})
		event, ret := set.Wait(1000)
		must.Eq(t, nvml.SUCCESS, ret)
		must.Eq(t, 79, event.EventData, must.Sprint("other types are not asked for"))
		uuid, _ := event.Device.GetUUID()
		must.Eq(t, gpu.UUID, uuid)
		_, ret = set.Wait(0)
		must.Eq(t, nvml.ERROR_TIMEOUT, ret)
	})
}

func TestHangEndsWhenItsLineGoes(t *testing.T) {
	Run(t, func(t *testing.T, m *Machine) {
		hung := State{Faults: Faults{Hang: []string{"nvmlInit*"}}}
		m.Set(hung)
		lib := nvml.New(nvml.WithLibraryPath(m.Library))
		done := make(chan nvml.Return, 1)
		go func() { done <- lib.Init() }()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		select {
		case <-done:
			t.Fatal("does not hang")
		case <-ctx.Done():
		}
		m.Set(State{})
		must.Eq(t, nvml.SUCCESS, <-done)
	})
}

func TestBuildWithoutFunctions(t *testing.T) {
	t.Parallel()
	library, err := Build(t.TempDir(), "nvmlDeviceGetName")
	must.NoError(t, err)
	must.Eq(t, Library, filepath.Base(library))
}
