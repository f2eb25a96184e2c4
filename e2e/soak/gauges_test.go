// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nomad-gpu-mem/e2e/soak/model"
)

// slack is what a process may use more at its quiet end than at its quiet beginning. After
// some hundred tasks every leak is larger: a process that loses a descriptor, a goroutine's
// stack or a thread for each task exceeds slack many times over.
var slack = model.Slack{FDs: 10, Threads: 16, RSSKiB: 64 << 10}

// gauges follow what the plugins' processes use. Goroutines cannot be counted from outside,
// but leaked ones hold descriptors, threads or memory, which can be counted.
type gauges struct {
	cluster *cluster

	mu        sync.Mutex
	processes []*model.Process
	begin     map[string]model.Sample // of each node's plugins when the cluster was quiet
}

const gaugeEvery = 3 * time.Second

func (g *gauges) follow(ctx context.Context) {
	for ok := true; ok; ok = wait(ctx, gaugeEvery) {
		g.sample()
	}
}

// sample reads all running processes of the plugins.
func (g *gauges) sample() (now map[string]model.Sample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now = map[string]model.Sample{}
	for _, m := range g.cluster.machines {
		for _, plugin := range []string{driverPlugin, devicePlugin} {
			for _, pid := range g.cluster.plugins(m, plugin) {
				sample, err := use(pid)
				if err != nil {
					continue // it has ended
				}
				name := m.name() + " " + plugin
				now[name] = sample
				p := g.process(name, pid)
				p.Samples = append(p.Samples, sample)
			}
		}
	}
	return now
}

func (g *gauges) process(name string, pid int) *model.Process {
	at := slices.IndexFunc(g.processes, func(p *model.Process) bool { return p.Name == name && p.PID == pid })
	if at >= 0 {
		return g.processes[at]
	}
	p := &model.Process{Name: name, PID: pid}
	g.processes = append(g.processes, p)
	return p
}

// rest records what the processes use while the cluster is quiet, before the churn.
func (g *gauges) rest() { g.begin = g.sample() }

// leaks compares the processes of now with those at the beginning.
func (g *gauges) leaks() (leaks []model.Leak) {
	for name, sample := range g.sample() {
		if begin, known := g.begin[name]; known {
			leaks = append(leaks, sample.Exceeds(begin, slack, name)...)
		}
	}
	return leaks
}

// trends returns those of the processes that run at the end, and of ended processes of the
// spare node, of which there should be none.
func (g *gauges) trends() (all []model.Trends) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.processes {
		last := p.Samples[len(p.Samples)-1].At
		if time.Since(last) < 2*gaugeEvery || strings.HasPrefix(p.Name, fmt.Sprintf("node-%d ", spare)) {
			all = append(all, p.Trends())
		}
	}
	return all
}

// use reads the resources that a process uses.
func use(pid int) (s model.Sample, err error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return s, err
	}
	s = model.Sample{At: time.Now(), FDs: len(fds)}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		switch key {
		case "Threads":
			s.Threads, _ = strconv.Atoi(number)
		case "VmRSS":
			s.RSSKiB, _ = strconv.Atoi(number)
		}
	}
	return s, err
}
