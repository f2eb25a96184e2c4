package device

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
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

func TestStatsOfAGPU(t *testing.T) {
	t.Parallel()
	g := full()
	g.Memory.UsedMiB, g.Memory.FreeMiB = 2048, 22228
	s := groupStats(history(t, Config{}, []nvml.GPU{g}))[0].InstanceStats["GPU-1::0000"]
	must.Eq(t, 2048, *s.Summary.IntNumeratorVal)
	must.Eq(t, 24576, *s.Summary.IntDenominatorVal)
	must.Eq(t, "MiB", s.Summary.Unit)
	memory := s.Stats.Nested["memory"].Attributes
	must.Eq(t, 22228, *memory["free"].IntNumeratorVal)
	must.Eq(t, 300, *memory["reserved"].IntNumeratorVal)
	must.Eq(t, 35, *s.Stats.Nested["load"].Attributes["utilization"].IntNumeratorVal)
	must.Eq(t, 41, *s.Stats.Attributes["temperature"].IntNumeratorVal)
	must.MapNotContainsKey(t, s.Stats.Attributes, "uncorrected_ecc")
	must.Eq(t, time.Unix(1, 0), s.Timestamp)
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
		if *s.Stats.Attributes["health"].StringVal == "GPU is lost" {
			break
		}
	}
}
