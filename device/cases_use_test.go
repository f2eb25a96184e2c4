// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"testing"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

// container is an ID as engines make them, of one digit.
func container(digit int) string {
	return fmt.Sprintf("%064d", digit)
}

// Memory of processes that NVML does not tell is never a number, and process
// IDs are the host's: they lead to containers by their cgroups.
func TestF16_ProcessMemory(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA GeForce RTX 4070 Ti SUPER", 16376)
		gpu.Processes = map[int]int{79: fakenvml.NotAvailable, 31999: 1013}
		gpu.More["used"] = "14360"
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		h.process(79, "0::/system.slice/docker-"+container(1)+".scope", nil)
		h.process(31999, "12:memory:/docker/"+container(2), nil)
		h.claim(gpu.UUID, 15, container(1), 0, 1, 2, 3)
		h.claim(gpu.UUID, 15, container(2), 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
		s := h.fingerprint()
		s.until(groups(1))
		h.reads(2 * pollsUp)
		g := h.inventory().offered[0]
		must.Eq(t, 15, g.healthyUnits(), must.Sprint("the total is within the slices"))
		must.True(t, g.slices[0].partly)
		must.Eq(t, 1013, g.slices[1].usedMiB)
		must.Eq(t, 14360, g.Memory.UsedMiB)
	})
}

// The driver's reserve is not sold, and is not use by a process, whichever
// version of NVML's call reports it. An idle GPU does not look used.
func TestF17_ReservedMemory(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		b200 := fakenvml.NewGPU(1, "NVIDIA B200", 183359)
		b200.ReservedMiB = 726
		wsl := fakenvml.NewGPU(2, "NVIDIA A100", 40960)
		wsl.ReservedMiB = 904
		wsl.More["used"] = "8"
		wsl.Fail = map[string]string{"nvmlDeviceGetMemoryInfo_v2": "UNKNOWN"}
		old := fakenvml.NewGPU(3, "NVIDIA GeForce GTX 1080 Ti", 11264)
		old.More["used"] = "221"
		m.Set(machine(b200, wsl, old))
		h := realNVML(t, m, quick())
		all := h.fingerprint().until(groups(3))
		must.Len(t, 178, groupOf(all, b200.UUID).Devices)
		must.Len(t, 40, groupOf(all, wsl.UUID).Devices)
		h.reads(2 * pollsUp)
		for _, g := range h.inventory().offered {
			must.Eq(t, g.units, g.healthyUnits(), must.Sprint(g.Name))
		}
		must.Eq(t, 912, h.inventory().offered[1].Memory.UsedMiB, must.Sprint("the first version counts it as used"))
	})
}

// Memory that is freed late after a stop withholds nothing; memory that is
// never freed is not sold.
func TestF46_MemoryComesBackLate(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "Tesla T4", 15360)
		gpu.Processes = map[int]int{100: 5144}
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		h.process(100, "0::/docker/"+container(1), nil)
		h.claim(gpu.UUID, 15, container(1), 0, 1, 2, 3, 4, 5)
		s := h.fingerprint()
		s.until(groups(1))
		h.reads(2 * pollsUp)
		must.Eq(t, 15, h.inventory().offered[0].healthyUnits())

		h.release(gpu.UUID, container(1)) // and its process stays
		all := s.until(unhealthy(gpu.UUID, "9-14"))
		must.StrContains(t, all[0].Devices[14].HealthDesc, "in use by processes that hold no slice")
		must.Eq(t, 9, intOf(all[0], "healthy_units"))

		gpu.Processes = nil
		m.Set(machine(gpu))
		s.until(unhealthy(gpu.UUID, ""))
	})
}

func TestF46_ShortlyAfterAStop(t *testing.T) {
	t.Parallel()
	with := newScene(t).claim("c", 0, 1).uses(1, 2000, "c").reading(1)
	late := newScene(t).uses(1, 2000, "c").reading(2)
	without := newScene(t).reading(3)
	for n := range pollsUp {
		readings := []reading{with}
		for range n {
			readings = append(readings, late)
			must.Eq(t, 8, story(t, Config{}, readings...).offered[0].healthyUnits())
		}
		must.Eq(t, 8, story(t, Config{}, append(readings, without)...).offered[0].healthyUnits())
	}
}

// Unmanaged use reduces the offered memory. A task of a driver
// that makes no claims does not: its environment has its booking.
func TestUseOutsideNomad(t *testing.T) {
	fakenvml.Run(t, func(t *testing.T, m *fakenvml.Machine) {
		gpu := fakenvml.NewGPU(1, "NVIDIA A30", 24576)
		gpu.Processes = map[int]int{100: 4000, 200: 3000}
		m.Set(machine(gpu))
		h := realNVML(t, m, quick())
		h.process(200, "0::/user.slice/session-1.scope", nil)
		s := h.fingerprint()
		s.until(groups(1))
		ids := []string{gpu.UUID + "::0020", gpu.UUID + "::0021", gpu.UUID + "::0022", gpu.UUID + "::0023"}
		r, err := h.nomad.Reserve(ids)
		must.NoError(t, err)
		h.process(100, "0::/docker/"+container(1), r.Envs)
		s.until(unhealthy(gpu.UUID, "17-19"))

		responses, err := h.nomad.Stats(h.ctx, minPeriod)
		must.NoError(t, err)
		t.Cleanup(func() { drain(h, responses) })
		units := (<-responses).Groups[0].InstanceStats
		must.Eq(t, "4000 / 4096 MiB", shown(units[ids[0]].Summary))
		must.Eq(t, "7000 / 24576 MiB", shown(units[gpu.UUID+"::0000"].Summary))
		must.Eq(t, "3000 MiB", shown(units[gpu.UUID+"::0000"].Stats.Attributes["Unmanaged memory"]))
		state := h.tableUntil(func(s *allocator.Snapshot) bool { return s.GPUs[0].State.UnmanagedMiB == 3000 }).GPUs[0].State
		must.Eq(t, "17-19", state.Unhealthy.String())
		must.StrContains(t, state.Health, "its memory is in use by processes")
	})
}

// A cordon keeps tasks off a GPU from the next poll on, also while the table is
// unavailable, and until it is removed.
func TestCordon(t *testing.T) {
	t.Parallel()
	h, _ := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0))
	table := allocator.NewTable(h.store)
	must.NoError(t, table.Cordon(t.Context(), "GPU-1", "fan is loud"))
	s := h.fingerprint()
	all := s.until(groups(2))
	must.True(t, health("GPU-1", "cordoned: fan is loud")(all), must.Sprint("from the first response on"))
	must.True(t, health("GPU-2", "")(all))

	h.store.Fail(allocator.ErrUnavailable)
	h.reads(5)
	h.store.Fail(nil)
	must.NoError(t, table.Uncordon(t.Context(), "GPU-1"))
	all = s.next()
	must.True(t, health("GPU-1", "")(all), must.Sprint("and nothing was sent in between"))

	must.NoError(t, table.Cordon(t.Context(), "GPU-2", ""))
	s.until(func(all []*device.DeviceGroup) bool { return groupOf(all, "GPU-2").Devices[0].HealthDesc == "cordoned" })
}

// No task can start on a GPU with unreadable claims, so Nomad must not place some there,
// one after the other: also if the plugin has started since, and no other GPU.
func TestUnreadableClaims(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} { // whether the value was there before the plugin
		h, _ := withCanned(t, gpuOf("GPU-1", 8192, 0), gpuOf("GPU-2", 8192, 0))
		table := allocator.NewTable(h.store)
		spoil := func() {
			write := allocator.Write{Key: allocator.ClaimsKey("GPU-1"), Value: []byte("garbage")}
			must.NoError(t, h.store.Apply(t.Context(), []allocator.Write{write}))
		}
		if before {
			spoil()
		}
		s := h.fingerprint()
		if !before {
			s.until(groups(2))
			spoil()
		}
		all := s.until(health("GPU-1", "its claims in the allocation table cannot be read"))
		must.True(t, health("GPU-2", "")(all))

		must.NoError(t, table.PurgeKey(t.Context(), allocator.ClaimsKey("GPU-1")))
		s.until(health("GPU-1", ""))
	}
}
