// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e && bench

package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/driver/logpipe"
)

// restTime is the time for which containers are idle before memory is read.
const restTime = 30 * time.Second

// idle is a task that does nothing until it gets a signal.
const idle = `trap 'exit 0' TERM; sleep 2147483647 & wait`

// memory is the memory of processes in KiB: their own pages, and their part of shared
// pages (PSS).
type memory struct{ agent, plugin, helpers int }

func (m memory) all() int { return m.agent + m.plugin + m.helpers }

func (m memory) less(o memory) memory {
	return memory{m.agent - o.agent, m.plugin - o.plugin, m.helpers - o.helpers}
}

// The memory that agent, driver and task helpers need in addition to their memory without a
// task. Nomad's log collectors do not count: each driver has one for each task.
func TestBench_memory(t *testing.T) {
	containers := rounds(100, 10)
	for _, driver := range []string{builtIn, ours} { // one-time allocations belong to no task
		shared.start(t, gpuJob("bench-memory-first", 0, byDriver(driver), running(idle)))
		shared.endAll(t, "bench-memory-first")
	}
	empty := shared.memory(t)
	r := newReport(t, fmt.Sprintf("Memory for %d idle containers", containers),
		"", "agent", "plugin", "helpers", "all", "ratio", "at most")
	builtIn := shared.memoryOfMany(t, builtIn, containers).less(empty)
	r.row("docker", mebibytes(builtIn.agent), mebibytes(builtIn.plugin), mebibytes(builtIn.helpers), mebibytes(builtIn.all()))
	ours := shared.memoryOfMany(t, ours, containers).less(empty)
	r.row(append([]string{"gpu-docker", mebibytes(ours.agent), mebibytes(ours.plugin), mebibytes(ours.helpers), mebibytes(ours.all())},
		r.atMost(ratio(ours.all(), builtIn.all()), 1)...)...)
}

// memoryOfMany reads memory while so many containers do nothing.
func (c *cluster) memoryOfMany(t *testing.T, driver string, containers int) memory {
	t.Helper()
	name := "bench-memory-" + driver
	job := gpuJob(name, 0, byDriver(driver), running(idle), func(job *api.Job) { job.TaskGroups[0].Count = ptr(containers) })
	job.TaskGroups[0].Tasks[0].Resources = &api.Resources{CPU: ptr(5), MemoryMB: ptr(10)}
	c.submit(t, job)
	eventually(t, 15*time.Minute, "all containers run", func() error {
		summary, _, err := c.nomad.Jobs().Summary(name, nil)
		if err == nil && summary.Summary[name].Running != containers {
			err = fmt.Errorf("%d run", summary.Summary[name].Running)
		}
		return err
	})
	time.Sleep(restTime)
	m := c.memory(t)
	c.endAll(t, name)
	return m
}

// memory adds up the processes of this cluster.
func (c *cluster) memory(t *testing.T) memory {
	t.Helper()
	m := memory{}
	for _, pid := range c.processes(t, "nomad") {
		m.agent += pss(pid)
	}
	for _, pid := range c.processes(t, driverPlugin) {
		m.plugin += pss(pid)
	}
	for _, pid := range append(c.processes(t, logpipe.ProcessName), c.dockerLoggers(t)...) {
		m.helpers += pss(pid)
	}
	return m
}

// dockerLoggers returns the log processes of Nomad's own driver for this cluster's tasks.
// Only the mark that all processes of a cluster inherit distinguishes them from those of
// another cluster.
func (c *cluster) dockerLoggers(t *testing.T) []int {
	t.Helper()
	return slices.DeleteFunc(pidsNaming(t, "docker_logger"), func(pid int) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return !bytes.Contains(environ, []byte("GPU_MEM_DAEMON_OF="+c.run+"\x00"))
	})
}

// pss returns what a process occupies, in KiB; 0 if it has ended.
func pss(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); fields[0] == "Pss:" {
			n, _ := strconv.Atoi(fields[1])
			return n
		}
	}
	return 0
}

func mebibytes(kib int) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
