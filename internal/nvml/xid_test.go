// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// callOfAWait is longer than one call that waits for an event, which is how long a watch
// that was ended may still receive an event. On a busy machine it may take longer; a
// test that relies on it then passes without proof, and never fails because of it.
const callOfAWait = 1500 * time.Millisecond

// xidsUntil collects Xids until these have come.
func xidsUntil(t *testing.T, r *nvml.Reader, want ...nvml.Xid) []nvml.Xid {
	t.Helper()
	var all []nvml.Xid
	eventually(t, func() bool {
		all = append(all, snapshot(t, r).Xids...)
		return !slices.ContainsFunc(want, func(w nvml.Xid) bool {
			return !slices.ContainsFunc(all, func(x nvml.Xid) bool { return x.UUID == w.UUID && x.Code == w.Code })
		})
	})
	return all
}

// watched returns once the GPUs' Xids are received: an event that nothing waits for
// is lost. It leaves the GPUs with the events that it took.
func watched(t *testing.T, m *fakenvml.Machine, r *nvml.Reader, gpus ...*fakenvml.GPU) {
	t.Helper()
	const looks = 20 // after each event, lest there be thousands
	heard := map[string]bool{}
	n := 0
	eventually(t, func() bool {
		if n++; n%looks == 1 {
			var now []fakenvml.GPU
			for _, gpu := range gpus {
				gpu.Events = append(gpu.Events, "xid 1")
				now = append(now, *gpu)
			}
			m.Set(state(now...))
		}
		for _, xid := range snapshot(t, r).Xids {
			heard[xid.UUID] = true
		}
		return len(heard) == len(gpus)
	})
}

func TestXidsAreHeardInOrder(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		watched(t, m, r, &one, &two)

		one.Events = append(one.Events, "xid 79", "xid 45")
		two.Events = append(two.Events, "2 0", "xid 13") // the first is an ECC event without a code
		m.Set(state(one, two))
		all := xidsUntil(t, r, nvml.Xid{UUID: two.UUID, Code: 13})
		all = slices.DeleteFunc(all, func(x nvml.Xid) bool { return x.Code == 1 })
		must.Eq(t, []nvml.Xid{{UUID: one.UUID, Code: 79}, {UUID: one.UUID, Code: 45}, {UUID: two.UUID, Code: 13}}, all)
		must.NoError(t, snapshot(t, r).XidsErr)
	})
}

func TestXidsAreHeardAgainAfterALoss(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		watched(t, m, r, &one, &two)

		one.Fail = map[string]string{"*": "GPU_IS_LOST"}
		two.Events = append(two.Events, "xid 31")
		m.Set(state(one, two))
		xidsUntil(t, r, nvml.Xid{UUID: two.UUID, Code: 31}) // the other one's still arrive
		must.Error(t, snapshot(t, r).GPUs[0].Err)
		one.Fail = nil
		watched(t, m, r, &one, &two)
	})
}

// A GPU with a slow reading is still watched: its next Xid is received,
// although it is sent once only.
func TestXidsAreHeardOfAGPUThatWasSlow(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		watched(t, m, r, &one, &two)

		one.Hang = []string{"nvmlDeviceGetMemoryInfo*"}
		m.Set(state(one, two))
		eventually(t, func() bool {
			s, err := readAtMost(r, 50*time.Millisecond)
			return err == nil && errors.Is(s.GPUs[0].Err, nvml.ErrHung)
		})
		one.Hang = nil
		m.Set(state(one, two))
		eventually(t, func() bool { return snapshot(t, r).GPUs[0].Err == nil })
		time.Sleep(callOfAWait)
		one.Events = append(one.Events, "xid 48")
		two.Events = append(two.Events, "xid 79")
		m.Set(state(one, two))
		xidsUntil(t, r, nvml.Xid{UUID: one.UUID, Code: 48}, nvml.Xid{UUID: two.UUID, Code: 79})
	})
}

// While a GPU that was lost is watched again, the others are watched without a gap.
func TestXidsOfOthersAreHeardWhenAGPUIsBack(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		one, two := fakenvml.NewGPU(1, "NVIDIA A30", 24576), fakenvml.NewGPU(2, "NVIDIA A30", 24576)
		r := open(t, m)
		watched(t, m, r, &one, &two)

		one.Fail = map[string]string{"*": "GPU_IS_LOST"}
		m.Set(state(one, two))
		eventually(t, func() bool { return snapshot(t, r).GPUs[0].Err != nil })
		one.Fail = nil
		m.Set(state(one, two))
		must.NoError(t, snapshot(t, r).GPUs[0].Err) // from here on it is watched again
		time.Sleep(callOfAWait)
		two.Events = append(two.Events, "xid 79")
		m.Set(state(one, two))
		xidsUntil(t, r, nvml.Xid{UUID: two.UUID, Code: 79})
	})
}

func TestXidsCannotBeHad(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		for _, fail := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents"} {
			gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
			refusing := state(gpu)
			refusing.GPUs[0].Fail = map[string]string{fail: "NOT_SUPPORTED"}
			refusing.Fail = refusing.GPUs[0].Fail
			r := open(t, m)
			m.Set(refusing)
			eventually(t, func() bool {
				s := snapshot(t, r)
				must.NoError(t, s.GPUs[0].Err)
				return s.XidsErr != nil
			})
			must.ErrorContains(t, snapshot(t, r).XidsErr, fail+": Not Supported")
			r.Close()
		}
	})
}

func TestLibraryWithoutEvents(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		m.Set(state(fakenvml.NewGPU(1, "NVIDIA A30", 24576)))
		r := open(t, m)
		eventually(t, func() bool { return snapshot(t, r).XidsErr != nil })
		must.ErrorContains(t, snapshot(t, r).XidsErr, "no such function")
	}, "nvmlEventSetWait_v2", "nvmlEventSetFree")
}

// A driver that hangs while waiting for Xids delays no reading.
func TestHangWhileWaitingForXids(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		r := open(t, m)
		stuck := state(gpu)
		stuck.Hang = []string{"nvmlEventSetWait_v2"}
		m.Set(stuck)
		for range 20 {
			must.NoError(t, snapshot(t, r).GPUs[0].Err)
		}
		watched(t, m, r, &gpu)
	})
}

func TestXidOfAMIGInstance(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		parent := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		parent.MIGMode = "on"
		instance := fakenvml.NewMIG(1, "NVIDIA A30 MIG 1g.6gb", 5952)
		instance.More = map[string]string{"gpu_instance": "3"}
		parent.MIG = []fakenvml.GPU{instance}
		r := open(t, m)
		watched(t, m, r, &parent)
		must.Eq(t, ptr(3), snapshot(t, r).GPUs[1].GPUInstance)

		parent.Events = append(parent.Events, "xid 94 3")
		m.Set(state(parent))
		all := xidsUntil(t, r, nvml.Xid{UUID: parent.UUID, Code: 94})
		must.Eq(t, nvml.Xid{UUID: parent.UUID, Code: 94, GPUInstance: ptr(3)}, all[len(all)-1])
	})
}
