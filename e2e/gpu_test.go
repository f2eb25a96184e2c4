// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// A GPU is lost under load. Tasks on the other GPU keep running; tasks on the lost one
// keep their claims; a job that fits only there waits, and starts when the GPU is
// back.
func TestGPUIsLostUnderLoadAndReturns(t *testing.T) {
	onLost := shared.start(t, gpuJob("lost-holder", 4, onGPU(bigGPU)))
	onOther := shared.start(t, gpuJob("lost-neighbour", 4, onGPU(smallGPU)))
	held := shared.claimsOf(t, "lost-holder", allocator.Running)[0]

	logged := len(shared.agentLog(t))
	lost := twoGPUs()
	lost.GPUs[0].Fail = map[string]string{"*": "GPU_IS_LOST"}
	shared.setGPUs(t, lost)
	t.Cleanup(func() { shared.setGPUs(t, twoGPUs()) })
	shared.waitHealthy(t, bigGPU, 0)
	shared.waitHealthy(t, smallGPU, 10)

	shared.submit(t, gpuJob("lost-waiter", 12))
	shared.waitBlocked(t, "lost-waiter")
	shared.start(t, gpuJob("lost-newcomer", 2))
	must.Eq(t, allocator.GPUID(smallGPU), shared.claimsOf(t, "lost-newcomer", allocator.Running)[0].gpu)
	for _, alloc := range []*api.Allocation{onLost, onOther} {
		must.Eq(t, alloc.ID, shared.waitRunning(t, alloc.JobID).ID)
	}
	must.Eq(t, held.Units, shared.claimsOf(t, "lost-holder", allocator.Running)[0].Units)
	must.StrContains(t, shared.cli(t, "status", "--gpu", bigGPU), "GPU is lost")
	must.StrContains(t, strings.Join(deviceComplaints(shared.agentLog(t)[logged:]), "\n"), "GPU is lost")

	shared.setGPUs(t, twoGPUs())
	shared.waitRunning(t, "lost-waiter")
	must.Eq(t, allocator.GPUID(bigGPU), shared.claimsOf(t, "lost-waiter", allocator.Running)[0].gpu)
	ticks := shared.waitTicks(t, onOther, "lost-neighbour", 5)
	must.Eq(t, sequence(len(ticks)), ticks)
}

// A cordoned GPU takes no new task, and its tasks keep running.
func TestCordonedGPUTakesNoTask(t *testing.T) {
	running := shared.start(t, gpuJob("cordon-holder", 2, onGPU(smallGPU)))
	shared.cli(t, "cordon", smallGPU, "--reason", "fan is loud")
	t.Cleanup(func() { shared.cli(t, "uncordon", smallGPU) })
	shared.waitHealthy(t, smallGPU, 0)
	must.StrContains(t, shared.cli(t, "status"), "fan is loud")

	shared.submit(t, gpuJob("cordon-waiter", 2, onGPU(smallGPU)))
	shared.waitBlocked(t, "cordon-waiter")
	must.Eq(t, running.ID, shared.waitRunning(t, "cordon-holder").ID)

	shared.cli(t, "uncordon", smallGPU)
	shared.waitRunning(t, "cordon-waiter")
}

// Memory that a program outside Nomad uses is not sold, and is sold again when it is
// free. In between, the plugin sends nothing to Nomad.
func TestMemoryInUseOutsideNomadIsNotSold(t *testing.T) {
	pid := outsider(t)
	used := twoGPUs()
	used.GPUs[1].Processes = map[int]int{pid: 3000}
	shared.setGPUs(t, used)
	t.Cleanup(func() { shared.setGPUs(t, twoGPUs()) })
	shared.waitHealthy(t, smallGPU, 7) // 724 MiB are in no unit: the rest takes three
	must.StrContains(t, shared.cli(t, "status", "--gpu", smallGPU), "in use by processes that hold no slice")

	before := shared.nodeIndex(t)
	time.Sleep(15 * time.Second) // longer than Nomad's client takes to report a change to its servers
	must.Eq(t, before, shared.nodeIndex(t))

	shared.setGPUs(t, twoGPUs())
	shared.waitHealthy(t, smallGPU, 10)
}

// A task's units show how much of its slice it uses, the node's statistics have all units,
// and none is missing: Nomad would log a warning for each at every query.
func TestStatisticsOfATask(t *testing.T) {
	logged := len(shared.agentLog(t))
	alloc := shared.start(t, gpuJob("stats-task", 4, onGPU(smallGPU)))
	held := shared.claimsOf(t, "stats-task", allocator.Running)[0]
	used := twoGPUs()
	used.GPUs[1].Processes = map[int]int{shared.container(t, held.Container).Pid: 1500}
	shared.setGPUs(t, used)
	t.Cleanup(func() { shared.setGPUs(t, twoGPUs()) })
	eventually(t, startTime, "its units show the slice's use", func() error {
		usage, err := shared.nomad.Allocations().Stats(alloc, nil)
		if err != nil {
			return err
		}
		for _, group := range usage.ResourceUsage.DeviceStats {
			for id, stats := range group.InstanceStats {
				if s := stats.Summary; s == nil || s.IntNumeratorVal == nil || *s.IntNumeratorVal != 1500 || *s.IntDenominatorVal != 4096 {
					return fmt.Errorf("unit %s shows %+v", id, stats.Summary)
				}
			}
			if len(group.InstanceStats) == 4 {
				return nil
			}
		}
		return fmt.Errorf("%d groups", len(usage.ResourceUsage.DeviceStats))
	})
	host, err := shared.nomad.Nodes().Stats(alloc.NodeID, nil)
	must.NoError(t, err)
	units := map[string]int{}
	for _, group := range host.DeviceStats {
		units[group.Name] = len(group.InstanceStats)
	}
	must.Eq(t, map[string]int{bigGPU: 23, smallGPU: 10}, units)
	must.SliceEmpty(t, deviceComplaints(shared.agentLog(t)[logged:]))
}
