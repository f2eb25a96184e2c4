// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/nvml"
)

func TestStatsHaveEveryUnitThatIsOffered(t *testing.T) {
	t.Parallel()
	i := history(t, Config{}, []nvml.GPU{full(), gpuOf("GPU-2", 2048, 0)}, []nvml.GPU{full(), failing("GPU-2")})
	all := groupStats(i)
	for n, group := range deviceGroups(i) {
		must.Eq(t, group.Name, all[n].Name)
		must.MapLen(t, len(group.Devices), all[n].InstanceStats)
		for _, unit := range group.Devices {
			must.NotNil(t, all[n].InstanceStats[unit.ID])
			must.True(t, all[n].InstanceStats[unit.ID] == all[n].InstanceStats[group.Devices[0].ID], must.Sprint("shared"))
		}
	}
}

// shown is a value as Nomad's commands print it.
func shown(v *structs.StatValue) string {
	switch {
	case v.StringVal != nil:
		return *v.StringVal
	case v.IntDenominatorVal != nil:
		return fmt.Sprintf("%d / %d %s", *v.IntNumeratorVal, *v.IntDenominatorVal, v.Unit)
	default:
		return fmt.Sprintf("%d %s", *v.IntNumeratorVal, v.Unit)
	}
}

func TestStatsOfAGPU(t *testing.T) {
	t.Parallel()
	g := full()
	g.Memory.UsedMiB = 2048
	s := groupStats(history(t, Config{}, []nvml.GPU{g}))[0].InstanceStats["GPU-1::0000"]
	must.Eq(t, "2048 / 24576 MiB", shown(s.Summary))
	must.Eq(t, time.Unix(1, 0), s.Timestamp)
	all := map[string]string{}
	for name, value := range s.Stats.Attributes {
		all[name] = shown(value)
	}
	must.Eq(t, map[string]string{
		"Memory state": "2048 / 24576 MiB", "Reserved memory": "300 MiB", "Unmanaged memory": "0 MiB", "Health": "",
		"BAR1 buffer state": "3 / 256 MiB", "Power usage": "61 / 230 W", "Temperature": "41 C",
		"GPU utilization": "35 %", "Memory utilization": "12 %", "Encoder utilization": "1 %", "Decoder utilization": "2 %",
		"ECC L1 errors": "0 #", "ECC L2 errors": "0 #", "ECC memory errors": "0 #",
		"Cores clock": "1400 MHz", "Memory clock": "1500 MHz",
	}, all)

	bare := groupStats(history(t, Config{}, []nvml.GPU{gpuOf("GPU-1", 8192, 0)}))[0].InstanceStats["GPU-1::0000"]
	must.MapNotContainsKey(t, bare.Stats.Attributes, "Power usage")
}

// The units of a task show its slice, how much of it is used, and the most that
// was.
func TestStatsOfATask(t *testing.T) {
	t.Parallel()
	peak := newScene(t).claim("c1", 2, 3).uses(10, 1500, "c1").reading(1)
	now := newScene(t).claim("c1", 2, 3).uses(10, 500, "c1").reading(2)
	units := groupStats(story(t, Config{}, peak, now))[0].InstanceStats
	must.MapLen(t, 8, units)
	must.Eq(t, "500 / 2048 MiB", shown(units["GPU-1::0002"].Summary))
	must.True(t, units["GPU-1::0002"] == units["GPU-1::0003"])
	must.Eq(t, "1500 MiB", shown(units["GPU-1::0002"].Stats.Attributes["Slice peak"]))
	must.NotNil(t, units["GPU-1::0002"].Stats.Attributes["Memory state"])
	must.MapNotContainsKey(t, units["GPU-1::0004"].Stats.Attributes, "Slice")

	unknown := newScene(t).claim("c1", 2, 3).uses(10, -1, "c1").reading(1)
	units = groupStats(story(t, Config{}, unknown))[0].InstanceStats
	must.Eq(t, "of 2048 MiB", shown(units["GPU-1::0002"].Summary))
}

func TestStatsStream(t *testing.T) {
	t.Parallel()
	h, reader := withCanned(t, full())
	h.fingerprint().until(groups(1))
	responses, err := h.nomad.Stats(h.ctx, 50*time.Millisecond)
	must.NoError(t, err)
	t.Cleanup(func() { drain(h, responses) })
	next := func() *device.StatsResponse {
		select {
		case r := <-responses:
			must.NoError(t, r.Error)
			return r
		case <-h.ctx.Done():
			t.Fatal("no statistics")
			return nil
		}
	}
	next()
	begin := time.Now()
	for range 3 {
		next()
	}
	must.GreaterEq(t, 100*time.Millisecond, time.Since(begin), must.Sprint("the interval"))

	reader.set(errLost)
	for {
		s := next().Groups[0].InstanceStats["GPU-1::0000"]
		must.NotNil(t, s.Summary)
		if *s.Stats.Attributes["Health"].StringVal == "GPU is lost" {
			break
		}
	}
}
