// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// Tasks outlive every part of the system: the same container keeps running under the
// same claim, its log has no gap and no line twice, and a later stop releases the
// units.
func TestTasksSurviveTheDeathOf(t *testing.T) {
	for _, test := range []struct {
		name string
		fell func(t *testing.T)
	}{
		{"the driver plugin", func(t *testing.T) {
			shared.kill(t, "nomad-driver-gpu-docker")
		}},
		{"the device plugin", func(t *testing.T) {
			shared.kill(t, "nomad-device-gpu-mem")
		}},
		{"the agent, killed", func(t *testing.T) {
			shared.kill(t, "nomad")
			shared.nomadScript(t, "start")
		}},
		{"the agent, stopped", func(t *testing.T) {
			shared.nomadScript(t, "stop")
			must.SliceEmpty(t, shared.processes(t, "nomad-driver-gpu-docker"))
			shared.nomadScript(t, "start")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "survive-" + strings.NewReplacer(" ", "-", ",", "").Replace(test.name)
			alloc := shared.start(t, gpuJob(name, 5))
			held := shared.claimsOf(t, name, allocator.Running)[0]
			startedAt := shared.container(t, held.Container).StartedAt

			test.fell(t)

			ticks := shared.waitTicks(t, alloc, name, 15)
			must.Eq(t, sequence(len(ticks)), ticks)
			now := shared.container(t, held.Container)
			must.True(t, now.Running)
			must.Eq(t, startedAt, now.StartedAt)
			must.Eq(t, []string{held.Container}, shared.containers(t, alloc.ID))
			after := shared.claimsOf(t, name, allocator.Running)[0]
			must.Eq(t, held.Units, after.Units)
			must.Eq(t, held.ClaimedAt, after.ClaimedAt)

			same := shared.waitRunning(t, name)
			must.Eq(t, alloc.ID, same.ID)
			must.Eq(t, 0, same.TaskStates[name].Restarts)
			shared.remove(t, name)
			must.SliceEmpty(t, shared.containers(t, alloc.ID))
		})
	}
}

func (c *cluster) nomadScript(t *testing.T, verb string) {
	t.Helper()
	_, err := c.script("nomad.sh", verb)
	must.NoError(t, err)
}

// waitTicks waits until the task has logged more numbers, and returns all of them.
func (c *cluster) waitTicks(t *testing.T, alloc *api.Allocation, task string, more int) []int {
	t.Helper()
	want := -1
	var ticks []int
	eventually(t, startTime, "the log continues", func() error {
		var err error
		if ticks, err = parseTicks(c.stdout(t, alloc, task)); err != nil {
			return err
		}
		if want < 0 {
			want = len(ticks) + more
		}
		if len(ticks) < want {
			return fmt.Errorf("%d lines, want %d", len(ticks), want)
		}
		return nil
	})
	return ticks
}

// parseTicks reads the numbers of complete lines "tick N".
func parseTicks(log string) ([]int, error) {
	var ticks []int
	for line := range strings.Lines(log) {
		number, isTick := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "tick ")
		if !isTick || !strings.HasSuffix(line, "\n") {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		ticks = append(ticks, n)
	}
	return ticks, nil
}

func sequence(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
